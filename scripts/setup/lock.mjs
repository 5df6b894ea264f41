import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { findExecutable } from './paths.mjs';
import { SetupError } from './setup-error.mjs';
import { say } from './report.mjs';

const WAIT_SECONDS = 3600;
const CONFLICT_EXIT_CODE = 75;

/**
 * Runs `work` while holding an flock on `path`. flock(1) locks the open file that it shares with this process, so the
 * kernel releases the lock when this process ends, for whatever reason: a lock is never stale.
 * @template T
 * @param {{ path: string, flags: 'r' | 'a' }} file
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
export async function withLock(file, work) {
  const descriptor = openSync(file.path, file.flags, 0o644);
  try {
    if (!(await tryLock(descriptor, ['--nonblock']))) {
      say(`another set-up is running (lock ${file.path}); waiting for it to finish`);
      if (!(await tryLock(descriptor, ['--timeout', String(WAIT_SECONDS)]))) {
        throw new SetupError(`another set-up has held the lock ${file.path} for ${WAIT_SECONDS} s`, {
          remedy: `find its process with: fuser -v ${file.path}`,
        });
      }
    }
    return await work();
  } finally {
    closeSync(descriptor);
  }
}

/**
 * @param {number} descriptor
 * @param {string[]} args
 * @returns {Promise<boolean>}
 */
function tryLock(descriptor, args) {
  const flock = findExecutable('flock');
  if (flock === undefined) throw new SetupError('flock is missing', { remedy: 'apt-get install util-linux' });
  return new Promise((resolve, reject) => {
    const child = spawn(flock, ['--conflict-exit-code', String(CONFLICT_EXIT_CODE), ...args, '3'], {
      stdio: ['ignore', 'ignore', 'inherit', descriptor],
    });
    child.once('error', reject);
    child.once('exit', (code) => {
      if (code === 0 || code === CONFLICT_EXIT_CODE) resolve(code === 0);
      else reject(new SetupError(`flock failed with exit code ${code}`));
    });
  });
}
