import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setInterval as every } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import { findFreeBytes } from '../../../lib/files/free-space.ts';
import { isDiskFull } from '../../host/full-disk.ts';
import { ProcessError } from '../../host/run-process.ts';

const WATCH_INTERVAL_MS = 250;

export interface SpaceLimits {
  /** The most bytes that the directory may hold. */
  maxBytes: number;
  /** Bytes that must stay free on the file system: PostgreSQL and running sandboxes use it too. */
  minFreeBytes: number;
}

/** Throws `capacity` unless `neededBytes` fit on the directory's file system and the reserve stays free. */
export async function checkFreeSpace(
  directory: string,
  neededBytes: number,
  minFreeBytes: number,
): Promise<void> {
  const freeBytes = await findFreeBytes(directory);
  if (freeBytes - neededBytes >= minFreeBytes) return;
  throw new AppError(
    'capacity',
    `this machine's disk has ${freeBytes} bytes free; the image needs about ${neededBytes} and ${minFreeBytes} must stay free`,
  );
}

/**
 * Runs `work` and watches the size of what it writes to `directory`, as an archive cannot be trusted about its unpacked
 * size. When a limit is exceeded, aborts the signal of `work`. Throws `capacity` when the disk has too little free
 * space and `invalid_image` when the directory is too large.
 */
export async function withinSpace<T>(
  directory: string,
  limits: SpaceLimits,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const ended = new AbortController();
  const watch = watchSpace(directory, limits, ended.signal).catch((error: unknown) =>
    controller.abort(error),
  );
  try {
    return await work(AbortSignal.any([signal, controller.signal]));
  } finally {
    ended.abort();
    await watch;
  }
}

async function watchSpace(directory: string, limits: SpaceLimits, ended: AbortSignal): Promise<void> {
  try {
    for await (const _ of every(WATCH_INTERVAL_MS, undefined, { signal: ended })) {
      await checkFreeSpace(directory, 0, limits.minFreeBytes);
      const usedBytes = await directoryBytes(directory);
      if (usedBytes <= limits.maxBytes) continue;
      throw new AppError('invalid_image', `the image unpacks to more than ${limits.maxBytes} bytes`);
    }
  } catch (error) {
    if (!ended.aborted) throw error;
  }
}

/** Sums the sizes of the files below a directory. Files that disappear meanwhile do not count. */
async function directoryBytes(directory: string): Promise<number> {
  let bytes = 0;
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true }).catch(() => [])) {
    if (!entry.isFile()) continue;
    const found = await stat(join(entry.parentPath, entry.name)).catch(() => undefined);
    bytes += found?.size ?? 0;
  }
  return bytes;
}

/** Whether a disk of this machine is full, as a system call or a program said. */
export function isOutOfSpace(error: unknown): boolean {
  const saysSo = error instanceof ProcessError && error.stderr.includes('No space left on device');
  return saysSo || isDiskFull(error);
}

/** `image`: the one that has no room. */
export function diskFull(cause: unknown, image?: string): AppError {
  const which = image === undefined ? '' : `image ${image}: `;
  return new AppError(
    'capacity',
    `${which}this machine's disk is full; remove images or sandboxes and try again`,
    { cause },
  );
}
