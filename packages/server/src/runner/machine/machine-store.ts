/**
 * Machines: the files that VMs are started from. A machine is the runner's own copy of QEMU with its libraries and
 * firmware, a kernel and an initramfs. State saved with one machine loads in no other, so each is kept as long as
 * something needs it, even when the host's packages or this service are upgraded or removed.
 *
 *   <directory>/<key>/kernel, initramfs, qemu/…, machine.json    complete, never written again
 *   <directory>/<key>.building/                                  being made or removed; a sweep removes it
 */
import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { Logger } from 'pino';
import type { Confinement } from '../../lib/protocol/runner-protocol.ts';
import { mayRunFrom, openClosure, type QemuClosure } from '../confinement/qemu-closure.ts';
import type { RunnerTools } from '../runner-config.ts';
import {
  buildMachine,
  initramfsPathOf,
  kernelPathOf,
  qemuDirectoryOf,
  UNFINISHED,
  type Donor,
} from './machine-builder.ts';
import { nameVersions, surveyMachine } from './machine-parts.ts';
import { findMachineRecord, type MachineRecord } from './machine-record.ts';
import { invariant } from '../../lib/invariant.ts';

export interface Machine {
  /** Identifies the machine for as long as saved state needs it. */
  key: string;
  closure: QemuClosure;
  kernelPath: string;
  initramfsPath: string;
  /** Versions of its parts, for people. */
  versions: MachineRecord['versions'];
}

export interface MachineStoreOptions {
  /** Holds one directory for each machine. */
  directory: string;
  /** Directory in which earlier releases kept copies of QEMU only. */
  formerDirectory?: string;
  tools: Pick<RunnerTools, 'qemu' | 'kernel' | 'initramfs'>;
  confinement: Confinement;
  log: Logger;
}

export class MachineStore {
  readonly #options: MachineStoreOptions;
  readonly #machines = new Map<string, Machine>();
  /** The machine made from the host's present files; new templates are made with it. */
  readonly current: Machine;

  private constructor(options: MachineStoreOptions, donors: readonly Donor[], currentKey: string) {
    this.#options = options;
    for (const donor of donors) {
      const machine = openMachine(donor, options.confinement);
      this.#machines.set(machine.key, machine);
    }
    const current = this.#machines.get(currentKey);
    invariant(current, `there is no machine ${currentKey}`);
    this.current = current;
  }

  /** Opens the store, and makes the machine of the host's present files unless it exists. */
  static async open(options: MachineStoreOptions): Promise<MachineStore> {
    const { directory, tools, log } = options;
    mkdirSync(directory, { recursive: true, mode: 0o711 });
    const donors = listMachines(directory);
    const parts = await surveyMachine(tools);
    const target = join(directory, parts.key);
    if (donors.every((donor) => donor.directory !== target)) {
      const versions = await nameVersions(tools.qemu, parts);
      // A directory that exists already is incomplete, or it would have been found.
      discard(target);
      donors.push({ directory: target, record: buildMachine(target, { parts, versions, donors }) });
      log.info({ machine: parts.key, versions }, 'machine made');
    }
    return new MachineStore(options, donors, parts.key);
  }

  find(key: string): Machine | undefined {
    return this.#machines.get(key);
  }

  /** Removes each machine that is not current, not in `keptKeys`, and runs none of the processes `livePids`. */
  sweep(keptKeys: ReadonlySet<string>, livePids: readonly number[]): void {
    const { directory, formerDirectory, log } = this.#options;
    for (const name of readdirSync(directory)) {
      if (name === this.current.key || keptKeys.has(name)) continue;
      const path = join(directory, name);
      if (!name.endsWith(UNFINISHED) && isInUse(qemuDirectoryOf(path), livePids)) continue;
      this.#machines.delete(name);
      discard(path);
      log.info({ machine: name }, 'a machine that nothing needs any more was removed');
    }
    if (formerDirectory !== undefined) sweepFormer(formerDirectory, livePids);
  }
}

/** Lists the complete machines, newest first. */
function listMachines(directory: string): Donor[] {
  const found: (Donor & { madeAt: number })[] = [];
  for (const name of readdirSync(directory)) {
    const path = join(directory, name);
    const record = name.endsWith(UNFINISHED) ? undefined : findMachineRecord(path);
    if (record === undefined || !isComplete(path, record)) continue;
    found.push({ directory: path, record, madeAt: statSync(path).mtimeMs });
  }
  return found.toSorted((a, b) => b.madeAt - a.madeAt);
}

function isComplete(machine: string, { qemu }: MachineRecord): boolean {
  const files = qemu.files.map(({ target }) => join(qemuDirectoryOf(machine), target));
  return [kernelPathOf(machine), initramfsPathOf(machine), ...files].every((path) => existsSync(path));
}

function openMachine({ directory, record }: Donor, confinement: Confinement): Machine {
  const closure = openClosure(qemuDirectoryOf(directory), record.qemu);
  setProgramMode(join(closure.directory, closure.program), confinement);
  return {
    key: basename(directory),
    closure,
    kernelPath: kernelPathOf(directory),
    initramfsPath: initramfsPathOf(directory),
    versions: record.versions,
  };
}

/**
 * In a jail, makes QEMU unreadable for its own user: such a program cannot be traced by any process and leaves no core
 * file. Outside a jail QEMU's own linker must read it. An ordinary user's runner, which is the same user, must read it
 * too, or it could not tell which processes are its own VMs.
 */
function setProgramMode(program: string, confinement: Confinement): void {
  const mode = confinement === 'full' ? 0o111 : 0o555;
  if ((statSync(program).mode & 0o777) !== mode) chmodSync(program, mode);
}

function isInUse(closure: string, pids: readonly number[]): boolean {
  return pids.some((pid) => mayRunFrom(pid, closure));
}

/** Removes a machine after renaming it: a partly removed one must not be taken for complete. */
function discard(machine: string): void {
  if (!existsSync(machine)) return;
  const trash = machine.endsWith(UNFINISHED) ? machine : `${machine}${UNFINISHED}`;
  if (trash !== machine) {
    rmSync(trash, { recursive: true, force: true });
    renameSync(machine, trash);
  }
  rmSync(trash, { recursive: true, force: true });
}

function sweepFormer(directory: string, pids: readonly number[]): void {
  if (!existsSync(directory)) return;
  for (const name of readdirSync(directory)) {
    const copy = join(directory, name);
    if (!isInUse(copy, pids)) rmSync(copy, { recursive: true, force: true });
  }
  if (readdirSync(directory).length === 0) rmSync(directory, { recursive: true });
}
