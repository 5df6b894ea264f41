/**
 * For tests only: a test can stop a process at a named step, to kill it, or another process, exactly there. Without
 * COPPICE_FAULT_DIR no file is checked.
 *
 *     test: makes hold-<step> ─► process reaches the step: makes at-<step>, waits ─► test: kills, removes hold-<step>
 *                                          └──────────────── continues ◄─────────────────────────┘
 *
 * A file `wall-offset-ms` in the directory sets the wall clock of every role forward or back, as an administrator
 * would.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pollUntil } from './waiting/deadline.ts';

/** A killed test must not leave a service that waits for ever. */
const HOLD_TIMEOUT_MS = 120_000;
const HOLD_POLL_MS = 5;

let directory: string | undefined;

/** Sets the directory. Each role calls this once, before it does anything. */
export function armFaults(path: string | undefined): void {
  directory = path;
}

/** Waits while a test holds this step; returns undefined at once if no test does. */
export function holdAt(step: string): Promise<void> | undefined {
  if (directory === undefined || !existsSync(join(directory, `hold-${step}`))) return undefined;
  return hold(directory, step);
}

async function hold(path: string, step: string): Promise<void> {
  if (!isFirst(join(path, `at-${step}`))) return;
  const held = join(path, `hold-${step}`);
  await pollUntil({ step: `the hold at ${step}`, timeoutMs: HOLD_TIMEOUT_MS, intervalMs: HOLD_POLL_MS }, () =>
    existsSync(held) ? undefined : true,
  );
}

/**
 * Claims the hold, which stops only one arrival. The file is opened exclusively, so that in a directory to which others
 * may write nothing is written through a link.
 */
function isFirst(path: string): boolean {
  try {
    writeFileSync(path, '', { flag: 'wx' });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return false;
  }
}

/** Returns Unix milliseconds of the host's clock, which may step. */
export function wallMs(): number {
  return Date.now() + (directory === undefined ? 0 : readOffset(join(directory, 'wall-offset-ms')));
}

function readOffset(path: string): number {
  return existsSync(path) ? Number(readFileSync(path, 'utf8')) : 0;
}
