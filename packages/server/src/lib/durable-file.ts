/** Files that are either wholly there or not at all, also after a crash of the host. */
import { closeSync, fsyncSync, openSync, renameSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

/** Puts a file's content on the disk. */
export function syncFile(path: string): void {
  const descriptor = openSync(path, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

export const syncDirectory = syncFile;

/** Writes beside `path`, syncs, renames over it and syncs the directory. */
export function writeDurably(path: string, content: string | Uint8Array): void {
  const temporary = `${path}.new`;
  const descriptor = openSync(temporary, 'w', 0o600);
  try {
    writeFileSync(descriptor, content);
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
  renameSync(temporary, path);
  syncDirectory(dirname(path));
}

/** As {@link writeDurably} but without syncs: whole after a crash of this process, not of the host. */
export function writeAtomically(path: string, content: string): void {
  const temporary = `${path}.new`;
  writeFileSync(temporary, content, { mode: 0o600 });
  renameSync(temporary, path);
}
