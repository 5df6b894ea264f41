import assert from 'node:assert/strict';
import { test } from 'node:test';
import { invariant, InvariantError } from './invariant.ts';

test('an invariant that holds narrows a type, one that does not throws for developers', () => {
  const found: { id: string } | undefined = [{ id: 'a' }].find(({ id }) => id === 'a');
  invariant(found, 'a was just added');
  assert.equal(found.id, 'a');
  for (const value of [false, undefined, null])
    assert.throws(() => invariant(value, 'x'), new InvariantError('x'));
  for (const value of [true, 0, '', {}]) invariant(value, 'x');
});
