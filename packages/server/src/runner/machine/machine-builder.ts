/**
 * Fills the directory of a machine. Hard-links files that another machine has already, so that they are on disk once.
 */
import {
  chmodSync,
  copyFileSync,
  linkSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { syncDirectory, syncFile } from '../../lib/files/durable-file.ts';
import type { ClosureFile } from '../confinement/qemu-closure.ts';
import type { MachineParts } from './machine-parts.ts';
import { machineRecordPath, type MachineRecord } from './machine-record.ts';

/** Suffix of the name of a directory that is being made or removed. */
export const UNFINISHED = '.building';

const FILE_MODE = 0o444;
const EXECUTABLE_MODE = 0o555;

export const kernelPathOf = (machine: string): string => join(machine, 'kernel');
export const initramfsPathOf = (machine: string): string => join(machine, 'initramfs');
export const qemuDirectoryOf = (machine: string): string => join(machine, 'qemu');

/** An existing machine to link files from. */
export interface Donor {
  directory: string;
  record: MachineRecord;
}

export function buildMachine(
  directory: string,
  {
    parts,
    versions,
    donors,
  }: { parts: MachineParts; versions: MachineRecord['versions']; donors: readonly Donor[] },
): MachineRecord {
  const building = `${directory}${UNFINISHED}`;
  rmSync(building, { recursive: true, force: true });
  mkdirSync(building, { recursive: true, mode: 0o711 });
  for (const file of parts.qemu.files) placeQemuFile(building, file, donors);
  for (const [name, pathOf] of [
    ['kernel', kernelPathOf],
    ['initramfs', initramfsPathOf],
  ] as const) {
    const donor = donors.find(({ record }) => record.digests[name] === parts.digests[name]);
    const target = pathOf(building);
    if (donor === undefined || !link(pathOf(donor.directory), target)) writeFileSync(target, parts[name]);
    chmodSync(target, FILE_MODE);
  }
  const { qemu, digests } = parts;
  const record: MachineRecord = { format: 1, qemu, digests, versions };
  writeFileSync(machineRecordPath(building), JSON.stringify(record), { mode: FILE_MODE });
  syncTree(building);
  renameSync(building, directory);
  syncDirectory(dirname(directory));
  return record;
}

function placeQemuFile(building: string, file: ClosureFile, donors: readonly Donor[]): void {
  const copy = join(qemuDirectoryOf(building), file.target);
  mkdirSync(dirname(copy), { recursive: true, mode: 0o755 });
  const donor = donors.find(({ record }) => record.qemu.files.some((other) => isSame(other, file)));
  if (donor !== undefined && link(join(qemuDirectoryOf(donor.directory), file.target), copy)) return;
  copyFileSync(file.source, copy);
  chmodSync(copy, EXECUTABLE_MODE);
}

function isSame(one: ClosureFile, other: ClosureFile): boolean {
  return (['source', 'target', 'size', 'mtimeMs'] as const).every((field) => one[field] === other[field]);
}

/** Returns false when the file system supports no hard links, or no more of them. */
function link(existing: string, path: string): boolean {
  try {
    linkSync(existing, path);
    return true;
  } catch {
    return false;
  }
}

function syncTree(directory: string): void {
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) syncTree(path);
    else syncFile(path);
  }
  syncDirectory(directory);
}
