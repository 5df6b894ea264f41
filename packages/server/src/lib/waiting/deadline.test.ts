import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { DeadlineError, pollUntil, stretchDeadlines, withDeadline } from './deadline.ts';

test('work that ends in time settles with its result', async () => {
  assert.equal(await withDeadline('work', 1000, Promise.resolve(7)), 7);
});

test('work that does not end is abandoned, and onTimeout is called', async () => {
  let told = false;
  const never = Promise.withResolvers<never>().promise;
  const wait = withDeadline('a thing', 5, never, () => {
    told = true;
  });
  await assert.rejects(wait, (error) => error instanceof DeadlineError && error.message.includes('a thing'));
  assert.ok(told);
});

test('a host that is three times slower gets three times as long', async () => {
  const late = (): Promise<number> => delay(60, 7);
  await assert.rejects(withDeadline('work', 30, late()), DeadlineError);
  stretchDeadlines(3);
  try {
    assert.equal(await withDeadline('work', 30, late()), 7);
    const end = performance.now() + 60;
    const wait = { step: 'the end', timeoutMs: 30, intervalMs: 5 };
    assert.ok(await pollUntil(wait, () => (performance.now() > end ? true : undefined)));
  } finally {
    stretchDeadlines(1);
  }
});

/** Blocks the process right before timers run. Timers run before the event loop reads what `meanwhile` sends. */
function holdUp(durationMs: number, meanwhile = (): void => undefined): void {
  setImmediate(() => {
    meanwhile();
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, durationMs);
  });
}

test('an answer that arrived in time counts even if the blocked process could not read it', async () => {
  const { port1, port2 } = new MessageChannel();
  const answered = once(port1, 'message') as Promise<[unknown]>;
  const waiting = withDeadline('an answer', 100, answered);
  holdUp(300, () => port2.postMessage('here'));
  const [data] = await waiting.finally(() => port1.close());
  assert.equal(data, 'here');
});

test('a process that was held up still abandons work whose result does not arrive', async () => {
  const wait = withDeadline('a thing', 100, Promise.withResolvers<never>().promise);
  holdUp(300);
  await assert.rejects(wait, DeadlineError);
});

test('polling stops at the first answer; without one the error names the step', async () => {
  let calls = 0;
  const options = { step: 'the third call', timeoutMs: 1000, intervalMs: 1 };
  assert.equal(await pollUntil(options, () => (++calls === 3 ? 'here' : undefined)), 'here');
  await assert.rejects(
    pollUntil({ ...options, timeoutMs: 3 }, () => undefined),
    /the third call/u,
  );
});
