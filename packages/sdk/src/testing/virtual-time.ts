import { mock } from 'node:test';

const STEP_MS = 1000;
/** Turns of the event loop in a step, in which real connections make progress. */
const TURNS = 20;

/**
 * Resolves with the virtual time that `work` takes until it is rejected, and the error. Throws after `limitMs` of it. At the
 * end the signal is aborted.
 */
export async function untilRejected(
  limitMs: number,
  work: (signal: AbortSignal) => Promise<unknown>,
): Promise<{ error: unknown; tookMs: number }> {
  const ending = new AbortController();
  mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  try {
    let failure: { error: unknown } | undefined;
    work(ending.signal).then(
      () => (failure = { error: new Error('it was not rejected') }),
      (error: unknown) => (failure = { error }),
    );
    for (let tookMs = 0; tookMs <= limitMs; tookMs += STEP_MS) {
      for (let turn = 0; turn < TURNS; turn += 1) await new Promise((resolve) => setImmediate(resolve));
      if (failure !== undefined) return { ...failure, tookMs };
      mock.timers.tick(STEP_MS);
    }
    throw new Error(`it is not rejected within ${limitMs} ms`);
  } finally {
    ending.abort();
    mock.timers.reset();
  }
}
