/** Directories in COPPICE_TEST_RUN that the processes of a test run share. The first that needs one makes it. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { pollUntil } from '../../lib/waiting/deadline.ts';

const TIMEOUT_MS = 180_000;
const POLL_MS = 50;
const RUN_DIRECTORY = process.env['COPPICE_TEST_RUN'];

/**
 * @param make  fills the given directory
 * @returns the directory of that name; undefined in a process that is started by hand, outside a run
 */
export async function makeOncePerRun(
  name: string,
  make: (directory: string) => Promise<void>,
): Promise<string | undefined> {
  if (RUN_DIRECTORY === undefined) return undefined;
  const path = join(RUN_DIRECTORY, name);
  if (existsSync(path)) return path;
  const [draft, failed] = [`${path}.new`, `${path}.failed`];
  if (await makeDirectory(draft)) {
    try {
      await make(draft);
    } catch (error) {
      writeFileSync(failed, String(error));
      throw error;
    }
    await rename(draft, path);
    return path;
  }
  const isMade = (): true | undefined => {
    if (existsSync(failed)) throw new Error(`${name} could not be made: ${readFileSync(failed, 'utf8')}`);
    return existsSync(path) ? true : undefined;
  };
  await pollUntil(
    { step: `another process to make ${path}`, timeoutMs: TIMEOUT_MS, intervalMs: POLL_MS },
    isMade,
  );
  return path;
}

/** Returns false when the directory already exists. */
async function makeDirectory(path: string): Promise<boolean> {
  try {
    await mkdir(path, { mode: 0o711 });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}
