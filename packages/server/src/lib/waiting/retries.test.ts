import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withRetries } from './retries.ts';

/** Fails as often as given, then returns the number of its calls. */
function failing(times: number): { attempt: () => Promise<number>; calls: () => number } {
  let calls = 0;
  const attempt = (): Promise<number> => {
    calls += 1;
    return calls > times ? Promise.resolve(calls) : Promise.reject(new Error(`failure ${calls}`));
  };
  return { attempt, calls: () => calls };
}

test('an attempt is repeated after each pause, and the last error is thrown', async () => {
  const seen: unknown[] = [];
  assert.equal(await withRetries([1, 1], failing(2).attempt, (error) => seen.push(error)), 3);
  assert.equal(seen.length, 2);
  const always = failing(Infinity);
  await assert.rejects(
    withRetries([1, 1], always.attempt, () => undefined),
    /failure 3/u,
  );
  assert.equal(always.calls(), 3);
});

test('an error that must not be repeated ends the attempts', async () => {
  const final = failing(Infinity);
  const refuse = (error: unknown): never => {
    throw error;
  };
  await assert.rejects(withRetries([1, 1], final.attempt, refuse), /failure 1/u);
  assert.equal(final.calls(), 1);
});
