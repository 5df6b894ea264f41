/** Probes that were killed: what they had is recognized by their process id in its name, and taken away. */
import { lstatSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { findIdentity, killAndWait } from '../runner/host/host-process.ts';
import type { VmAccounts } from '../runner/confinement/vm-accounts.ts';

/** A disk file system on most hosts; what is in it is the probe's user's alone. */
const PARENT = '/var/tmp';
const NAME = /^coppice-doctor-(\d+)-/u;

/** A new directory, open to nobody else. */
export function makeProbeDirectory(): string {
  const directory = mkdtempSync(join(PARENT, `coppice-doctor-${process.pid}-`));
  mkdirSync(join(directory, 'vm'), { mode: 0o700 });
  return directory;
}

/** Directories of ours whose probe is gone, with the VMs in them. Nobody else's: others may write in {@link PARENT}. */
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
