/** `npm start`: set-up, then the service in the foreground, until it ends or is asked to. */
import { spawn } from 'node:child_process';
import { runMain } from './setup/entry.mjs';
import { findExecutable } from './setup/paths.mjs';
import { sayDone } from './setup/report.mjs';
import { setUp } from './setup/setup.mjs';

/**
 * A terminal's Ctrl-C reaches us from the terminal, from npm, and once more when npm's shell is gone: signals
 * this close together are one wish. A later one is a person who has waited long enough.
 */
const SAME_WISH_MS = 2_000;
const SIGNAL_NUMBERS = /** @type {Record<string, number>} */ ({
  SIGHUP: 1,
  SIGINT: 2,
  SIGKILL: 9,
  SIGTERM: 15,
});

/**
 * @param {string[]} program  with its arguments
 * @returns {Promise<number>} exit code, 128 + n for a signal
 */
function runService(program) {
  // If this process is killed, the service is asked to stop; nothing else would tell it. Its own process
  // group keeps a terminal's signals from reaching it twice.
  const child = spawn(findExecutable('setpriv') ?? 'setpriv', ['--pdeathsig', 'TERM', '--', ...program], {
    stdio: 'inherit',
    detached: true,
  });
  forwardSignals(child);
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code, signal) => resolve(code ?? 128 + (SIGNAL_NUMBERS[signal ?? ''] ?? 0)));
  });
}

/** @param {import('node:child_process').ChildProcess} child */
function forwardSignals(child) {
  let forwardedAt = Number.NEGATIVE_INFINITY;
  for (const signal of /** @type {NodeJS.Signals[]} */ (['SIGINT', 'SIGTERM', 'SIGHUP'])) {
    process.removeAllListeners(signal); // from here on a signal is the service's to answer
    process.on(signal, () => {
      if (performance.now() - forwardedAt < SAME_WISH_MS) return;
      forwardedAt = performance.now();
      child.kill(signal === 'SIGHUP' ? 'SIGTERM' : signal); // a terminal that is closed; sent to the service itself it means: read the certificate again
    });
  }
}

await runMain(async (args) => {
  const { node, service } = await setUp({});
  sayDone();
  return runService([node, service, ...args]);
});
