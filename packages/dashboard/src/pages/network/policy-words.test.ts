import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describePolicy } from './policy-words.ts';

test('a policy is described by what it does with the rest', () => {
  assert.equal(describePolicy({ allow: [], deny: [] }), 'Allows everything.');
  assert.equal(describePolicy({ allow: ['0.0.0.0/0'], deny: [] }), 'Allows everything.');
  assert.equal(describePolicy({ allow: [], deny: ['a.example'] }), 'Allows everything except one rule.');
  assert.equal(
    describePolicy({ allow: ['*', 'b.example'], deny: ['a.example'] }),
    'Allows everything except one rule.',
  );
  assert.equal(describePolicy({ allow: [], deny: ['0.0.0.0/0', 'a.example'] }), 'Allows nothing.');
  assert.equal(describePolicy({ allow: ['a.example', 'b.example'], deny: [] }), 'Allows only 2 rules.');
  assert.equal(
    describePolicy({ allow: ['*.a.example'], deny: ['x.a.example'] }),
    'Allows only one rule, except one rule.',
  );
});
