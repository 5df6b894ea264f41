/** Files that exist completely or not at all, also after a crash of the host. A failed write leaves nothing. */
import { open, rename, rm, writeFile } from 'node:fs/promises';
import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

/** Flushes a file's content to the disk. */
export function syncFile(path: string): void {
  const descriptor = openSync(path, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

export const syncDirectory = syncFile;

/** As {@link syncFile}, for files and directories, but waits for the disk on another thread. */
export async function syncLater(path: string): Promise<void> {
  await using file = await open(path, 'r');
  await file.sync();
}

/** Writes a temporary file next to `path`, syncs it, renames it to `path` and syncs the directory. */
export function writeDurably(path: string, content: string | Uint8Array): void {
  replaceFile(path, content, { flush: true });
  syncDirectory(dirname(path));
}

/** As {@link writeDurably}, on another thread. */
export async function writeDurablyLater(path: string, content: string): Promise<void> {
  const temporary = `${path}.new`;
  try {
    await writeFile(temporary, content, { mode: 0o600, flush: true });
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await syncLater(dirname(path));
}

/** As {@link writeDurably} but without syncs: the file is complete after a crash of this process, not of the host. */
export function writeAtomically(path: string, content: string): void {
  replaceFile(path, content, { flush: false });
}

function replaceFile(path: string, content: string | Uint8Array, { flush }: { flush: boolean }): void {
  const temporary = `${path}.new`;
  try {
    writeFileSync(temporary, content, { mode: 0o600, flush });
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
}
