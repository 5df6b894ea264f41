/**
 * For tests only: lets a test stop a process at a named step, to kill it, or somebody else, exactly there. Without
 * COPPICE_FAULT_DIR nothing is looked for.
 *
 *     test: makes hold-<step> ─► process reaches the step: makes at-<step>, waits ─► test: kills, removes hold-<step>
 *                                          └──────────────── goes on ◄───────────────────────────┘
 *
 * A file `wall-offset-ms` there sets the wall clock of every role forward or back, as an administrator would.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pollUntil } from './waiting/deadline.ts';

/** A test that was killed must not leave a service that waits for ever. */
const HOLD_TIMEOUT_MS = 120_000;
const HOLD_POLL_MS = 5;

let directory: string | undefined;

/** Called once by each role, before it does anything. */
export function armFaults(path: string | undefined): void {
  directory = path;
}

/** Undefined, and done, unless a test holds this step. */
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
 * One hold stops one arrival. The file is made anew only: in a directory that others may write to, nothing is written
 * through a link.
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

/** Unix milliseconds, as the host's clock says: it may step. */
export function wallMs(): number {
  return Date.now() + (directory === undefined ? 0 : readOffset(join(directory, 'wall-offset-ms')));
}

function readOffset(path: string): number {
  return existsSync(path) ? Number(readFileSync(path, 'utf8')) : 0;
}
