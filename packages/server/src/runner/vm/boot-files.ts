import { chmodSync, mkdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { runCommand } from '../../lib/process/run-command.ts';
import { giveTo } from '../host/file-owner.ts';

export interface BootFiles {
  /** Emptied. */
  socketDirectory: string;
  /** May lie in the directory of the sockets. */
  ramPath: string;
  memMiB: number;
  uid: number;
}

/** What a cold boot starts with, the VM's own: no sockets, and memory full of zeros that takes no room yet. */
export function makeBootFiles({ socketDirectory, ramPath, memMiB, uid }: BootFiles): void {
  makeSocketDirectory(socketDirectory, uid);
  writeFileSync(ramPath, '', { mode: 0o600 });
  truncateSync(ramPath, memMiB * 1024 * 1024);
  giveTo(ramPath, uid);
}

/** The same for a VM that goes on from what was saved, with a copy of that memory. */
export async function copyBootFiles(
  savedRamPath: string,
  { socketDirectory, ramPath, uid }: Omit<BootFiles, 'memMiB'>,
): Promise<void> {
  makeSocketDirectory(socketDirectory, uid);
  // Most of memory has never been written to, and takes no room in the copy either.
  await runCommand('cp', ['--sparse=always', '--reflink=auto', '--', savedRamPath, ramPath]);
  chmodSync(ramPath, 0o600);
  giveTo(ramPath, uid);
}

function makeSocketDirectory(path: string, uid: number): void {
  rmSync(path, { recursive: true, force: true });
  mkdirSync(path, { recursive: true, mode: 0o700 });
  giveTo(path, uid);
}
