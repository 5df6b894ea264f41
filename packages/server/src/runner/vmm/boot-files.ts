import { mkdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { giveTo } from './vm-accounts.ts';

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
  rmSync(socketDirectory, { recursive: true, force: true });
  mkdirSync(socketDirectory, { recursive: true, mode: 0o700 });
  writeFileSync(ramPath, '', { mode: 0o600 });
  truncateSync(ramPath, memMiB * 1024 * 1024);
  for (const path of [socketDirectory, ramPath]) giveTo(path, uid);
}
