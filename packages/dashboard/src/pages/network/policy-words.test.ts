import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describePolicy } from './policy-words.ts';

test('a policy is described by what it does with the rest', () => {
  assert.equal(describePolicy({ allow: [], deny: [] }), 'Allows everything.');
  assert.equal(describePolicy({ allow: ['0.0.0.0/0'], deny: [] }), 'Allows everything.');
  assert.equal(
    describePolicy({ allow: [], deny: ['a.example'] }),
    'Allows everything except what one rule matches.',
  );
  assert.equal(
    describePolicy({ allow: ['*', 'b.example'], deny: ['a.example'] }),
    'Allows everything except what one rule matches.',
  );
  assert.equal(describePolicy({ allow: [], deny: ['0.0.0.0/0', 'a.example'] }), 'Allows nothing.');
  assert.equal(
    describePolicy({ allow: ['a.example', 'b.example'], deny: [] }),
    'Allows only what 2 rules match.',
  );
  assert.equal(
    describePolicy({ allow: ['*.a.example'], deny: ['x.a.example'] }),
    'Allows only what one rule matches, except what one rule matches.',
  );
});
