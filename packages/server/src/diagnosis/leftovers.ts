/** Cleans up after killed probes: their directories and tables carry the process id of the probe in their names. */
import { lstatSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { findIdentity, killAndWait } from '../runner/host/host-process.ts';
import type { VmAccounts } from '../runner/confinement/vm-accounts.ts';

/** On a disk file system on most hosts. Each probe's directory in it is accessible only to the probe's user. */
const PARENT = '/var/tmp';
const NAME = /^coppice-doctor-(\d+)-/u;

/** Creates a directory that is closed to other users. */
export function makeProbeDirectory(): string {
  const directory = mkdtempSync(join(PARENT, `coppice-doctor-${process.pid}-`));
  mkdirSync(join(directory, 'vm'), { mode: 0o700 });
  return directory;
}

/**
 * Removes this user's directories of dead probes, and kills the VMs in them. Directories of other users are skipped,
 * because others may also write in {@link PARENT}.
 */
export async function removeLeftDirectories(accountsOf: (directory: string) => VmAccounts): Promise<void> {
  for (const name of readdirSync(PARENT)) {
    const pid = Number(NAME.exec(name)?.[1]);
    const path = join(PARENT, name);
    if (!(pid > 0) || isProbeAlive(pid) || !isOurs(path)) continue;
    for (const vmm of accountsOf(path).listAllVmms()) await killAndWait(vmm);
    rmSync(path, { recursive: true, force: true });
  }
}

export function isProbeAlive(pid: number): boolean {
  return findIdentity(pid) !== undefined;
}

function isOurs(path: string): boolean {
  const found = lstatSync(path, { throwIfNoEntry: false });
  return found?.isDirectory() === true && found.uid === process.getuid?.();
}
