import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WakeSignal } from './wake-signal.ts';

const LONG_MS = 600_000;
const running = new AbortController().signal;

test(
  'a wake ends the pause, also one that came before it, until the next reset',
  { timeout: 10_000 },
  async () => {
    const signal = new WakeSignal();
    const pause = signal.pause(LONG_MS, running);
    signal.wake();
    await pause;
    await signal.pause(LONG_MS, running);
    signal.reset();
    const startedAt = performance.now();
    await signal.pause(50, running);
    assert.ok(performance.now() - startedAt >= 45);
  },
);

test('the stop ends a pause, before or during it', { timeout: 10_000 }, async () => {
  const stop = new AbortController();
  const signal = new WakeSignal();
  const pause = signal.pause(LONG_MS, stop.signal);
  stop.abort();
  await pause;
  await signal.pause(LONG_MS, stop.signal);
});
