import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DeadlineError, pollUntil, withDeadline } from './deadline.ts';

test('work that ends in time answers what it answered', async () => {
  assert.equal(await withDeadline('work', 1000, Promise.resolve(7)), 7);
});

test('work that does not end is given up, and its owner told', async () => {
  let told = false;
  const never = Promise.withResolvers<never>().promise;
  const wait = withDeadline('a thing', 5, never, () => {
    told = true;
  });
  await assert.rejects(wait, (error) => error instanceof DeadlineError && error.message.includes('a thing'));
  assert.ok(told);
});

test('polling stops at the first answer and names what it waited for when there is none', async () => {
  let calls = 0;
  const options = { step: 'the third call', timeoutMs: 1000, intervalMs: 1 };
  assert.equal(await pollUntil(options, () => (++calls === 3 ? 'here' : undefined)), 'here');
  await assert.rejects(
    pollUntil({ ...options, timeoutMs: 3 }, () => undefined),
    /the third call/u,
  );
});
