/**
 * An flock(2) on a directory. flock(1) locks the open directory, which it shares with this process. The kernel frees
 * the lock however this process ends.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, fstatSync, mkdirSync, openSync, statSync } from 'node:fs';

const CONFLICT_EXIT_CODE = 75;
const MS_PER_SECOND = 1000;

/** Creates the directory if it is absent, and waits for its lock. Throws an Error after `timeoutMs`. */
export async function lockDirectory(path: string, timeoutMs: number): Promise<Disposable> {
  for (;;) {
    mkdirSync(path, { recursive: true, mode: 0o755 });
    const descriptor = openSync(path, 'r');
    try {
      await lock(descriptor, path, timeoutMs);
      if (isStillThere(descriptor, path)) return { [Symbol.dispose]: () => closeSync(descriptor) };
    } catch (error) {
      closeSync(descriptor);
      throw error;
    }
    closeSync(descriptor);
  }
}

async function lock(descriptor: number, path: string, timeoutMs: number): Promise<void> {
  const options = ['--conflict-exit-code', String(CONFLICT_EXIT_CODE)];
  const timeout = ['--timeout', String(timeoutMs / MS_PER_SECOND)];
  const child = spawn('flock', [...options, ...timeout, '3'], {
    stdio: ['ignore', 'ignore', 'inherit', descriptor],
  });
  const [code] = (await once(child, 'exit')) as [number | null];
  if (code === CONFLICT_EXIT_CODE)
    throw new Error(`another process has held the lock of ${path} for ${timeoutMs} ms: fuser -v ${path}`);
  if (code !== 0) throw new Error(`flock could not lock ${path} (exit code ${code ?? 'none'})`);
}

/** Whether the locked directory is still at `path`: a lock on a removed directory does not exclude a later caller. */
function isStillThere(descriptor: number, path: string): boolean {
  const found = statSync(path, { throwIfNoEntry: false });
  return found?.ino === fstatSync(descriptor).ino;
}
