/** `npm start`: runs set-up, then the service in the foreground until it ends or receives a signal. */
import { spawn } from 'node:child_process';
import { runMain } from './setup/entry.mjs';
import { findExecutable } from './setup/paths.mjs';
import { sayDone } from './setup/report.mjs';
import { setUp } from './setup/setup.mjs';

/**
 * One Ctrl-C reaches this process from the terminal, from npm, and once more when npm's shell is gone: signals this
 * close together count as one. A later signal is a second Ctrl-C of an impatient person, and is forwarded too.
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
  // If this process is killed, the kernel sends SIGTERM to the service; nothing else would stop it. The service has a
  // process group of its own, so a terminal's signals do not reach it twice.
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
    process.removeAllListeners(signal); // from here on, the service alone reacts to signals
    process.on(signal, () => {
      if (performance.now() - forwardedAt < SAME_WISH_MS) return;
      forwardedAt = performance.now();
      // SIGHUP here means that the terminal was closed. The service itself reloads its certificate on SIGHUP.
      child.kill(signal === 'SIGHUP' ? 'SIGTERM' : signal);
    });
  }
}

await runMain(async (args) => {
  const { node, service } = await setUp({});
  sayDone();
  return runService([node, service, ...args]);
});
