import { chmodSync, mkdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { runCommand } from '../../lib/process/run-command.ts';
import { giveTo } from '../host/file-owner.ts';

export interface BootFiles {
  /** Emptied first. */
  socketDirectory: string;
  /** May lie in the socket directory. */
  ramPath: string;
  memMiB: number;
  uid: number;
}

/** Creates the files of a cold boot, owned by the VM: an empty socket directory, and sparse memory full of zeros. */
export function makeBootFiles({ socketDirectory, ramPath, memMiB, uid }: BootFiles): void {
  makeSocketDirectory(socketDirectory, uid);
  writeFileSync(ramPath, '', { mode: 0o600 });
  truncateSync(ramPath, memMiB * 1024 * 1024);
  giveTo(ramPath, uid);
}

/** Creates the same files for a VM that continues from saved state, with a copy of its memory. */
export async function copyBootFiles(
  savedRamPath: string,
  { socketDirectory, ramPath, uid }: Omit<BootFiles, 'memMiB'>,
): Promise<void> {
  makeSocketDirectory(socketDirectory, uid);
  // Most of the memory was never written, and takes no space in the copy either.
  await runCommand('cp', ['--sparse=always', '--reflink=auto', '--', savedRamPath, ramPath]);
  chmodSync(ramPath, 0o600);
  giveTo(ramPath, uid);
}

function makeSocketDirectory(path: string, uid: number): void {
  rmSync(path, { recursive: true, force: true });
  mkdirSync(path, { recursive: true, mode: 0o700 });
  giveTo(path, uid);
}
