/** Starts QEMU and other programs through the launcher, so that they can reach only their own files from the start. */
import { spawn, type ChildProcess, type IOType, type SpawnOptions } from 'node:child_process';
import { closeSync, openSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Stream, Writable } from 'node:stream';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { Machine } from '../machine/machine-store.ts';
import type { MachineShape } from '../vm/shape.ts';
import { chooseConfinement, type ConfinementChoice } from './confinement-probe.ts';
import { fileSizeFor, LARGEST_FILE_BYTES } from './file-size-limit.ts';
import { encodePlan, launcherCommand, type JailLimits, type JailPlan, type Mount } from './jail-plan.ts';
import { commandInside, commandOutside } from './qemu-closure.ts';
import {
  arrangeInside,
  arrangeOutside,
  type MachineFiles,
  type StartMode,
  type VmLayout,
} from './vm-layout.ts';

/** QEMU keeps a few dozen open. */
const OPEN_FILES = 1024;
/** QEMU's own threads, in addition to one per vCPU: 64 for disks, some for itself. */
const THREADS = 128;
const MIB = 1024 * 1024;

export interface JailOptions {
  launcherPath: string;
  /** User id of the probe. */
  uid: number;
  log: Logger;
}

export interface JailedStart {
  shape: MachineShape;
  /** Paths on the host. */
  files: MachineFiles;
  /** From {@link Jail.arrange}. */
  layout: VmLayout;
  /** QEMU's arguments, with the paths of the layout. */
  args: readonly string[];
  machine: Machine;
  uid: number;
  /** Directories of the control groups to enter. */
  cgroups: readonly string[];
  /** One of `descriptors` must hold the place of its descriptor. */
  tap: { name: string; descriptor: number } | undefined;
  /** The child's descriptors from 1 on. */
  descriptors: readonly (number | 'ignore')[];
}

/** A program that is not QEMU. It ends with the runner, and cannot reserve space on a disk. */
export interface JailedProgram {
  /** Path on the host, at which it is also mounted. */
  program: string;
  args: readonly string[];
  /** Everything that it sees; empty without namespaces, where it sees the host's paths. */
  mounts: readonly Mount[];
  /** Absent if the service runs as an ordinary user. */
  uid?: number;
  /** Directories of its control groups. */
  cgroups: readonly string[];
  limits: JailLimits;
  /** The child's descriptors from 1 on. The program keeps all, except `input`. */
  stdio: readonly (IOType | number | Stream)[];
  /** Descriptor that becomes its standard input. */
  input: number;
}

export class Jail {
  readonly confinement: ConfinementChoice;
  readonly #options: JailOptions;

  private constructor(options: JailOptions, confinement: ConfinementChoice) {
    this.#options = options;
    this.confinement = confinement;
  }

  static async open(options: JailOptions): Promise<Jail> {
    const { launcherPath, uid, log } = options;
    const choice = await chooseConfinement({ launcherPath, isRoot: isRoot(), uid });
    const level = choice.kind === 'reduced' ? 'warn' : 'info';
    log[level]({ confinement: choice.kind, reason: choice.reason }, 'confinement of QEMU');
    return new Jail(options, choice);
  }

  /** Returns the paths under which QEMU sees the host paths in `files` and `mode`. */
  arrange(files: MachineFiles, mode: StartMode): VmLayout {
    return this.isReduced ? arrangeOutside(files, mode) : arrangeInside(files, mode);
  }

  /** Starts a program without an environment and without a network. */
  start(start: JailedProgram): ChildProcess {
    const { program, mounts, uid, limits, stdio, input } = start;
    const plan = {
      cgroups: procsOf(start.cgroups),
      mounts,
      limits,
      input,
      args: start.args,
      endWithParent: true,
      noFallocate: true,
      ...(uid !== undefined && { uid }),
    };
    const kept = stdio
      .map((_, index) => index + 1)
      .filter((descriptor) => descriptor > 2 && descriptor !== input);
    if (!this.isReduced) return this.#launch({ ...plan, descriptors: kept, program }, stdio, { cwd: '/' });
    // The program's user may not be able to reach its file.
    const opened = openSync(program, 'r');
    try {
      const path = `/proc/self/fd/${stdio.length + 1}`;
      return this.#launch({ ...plan, descriptors: kept, program: path }, [...stdio, opened], { cwd: '/' });
    } finally {
      closeSync(opened);
    }
  }

  /** Starts the launcher detached: it must survive this process. Its pid stays the same when it becomes QEMU. */
  spawn(start: JailedStart): ChildProcess {
    const cwd = start.files.socketDirectory;
    return this.#launch(this.buildPlan(start), start.descriptors, { cwd, detached: true });
  }

  /** `stdio` holds the child's descriptors from 1 on. */
  #launch(plan: JailPlan, stdio: JailedProgram['stdio'], how: SpawnOptions): ChildProcess {
    const { kind } = this.confinement;
    const { command, args } = launcherCommand(kind, this.#options.launcherPath);
    const child = spawn(command, args, { ...how, env: {}, stdio: ['pipe', ...stdio] });
    // Without free descriptors there are no pipes, and the error comes later as an event.
    child.on('error', (error) => this.#options.log.debug({ err: error }, 'the launcher was not started'));
    if ((child.stdin as Writable | null | undefined) === undefined)
      throw new AppError('unavailable', 'the runner has no file descriptors left; try again later');
    // A launcher that exits before it has read the plan gives the reason among the program's messages.
    child.stdin?.on('error', (error) =>
      this.#options.log.debug({ err: error }, 'the launcher closed its input'),
    );
    child.stdin?.end(encodePlan(kind, plan));
    return child;
  }

  /** Builds the plan: everything that this VM's QEMU can use. */
  buildPlan(start: JailedStart): JailPlan {
    const { layout, args } = start;
    const { closure } = start.machine;
    const qemu = this.isReduced ? commandOutside(closure) : commandInside(closure);
    return {
      cgroups: procsOf(start.cgroups),
      mounts: this.isReduced ? [] : [...closure.mounts, ...layout.mounts],
      ...(isRoot() ? { uid: start.uid } : {}),
      ...(start.tap === undefined ? {} : { tap: start.tap }),
      limits: limitsOf(start),
      mayConnect: start.files.workspace !== undefined,
      descriptors: start.descriptors.flatMap((given, index) =>
        typeof given === 'number' && index >= 2 ? [index + 1] : [],
      ),
      program: qemu.program,
      args: [...qemu.args, ...args],
    };
  }

  /** Whether programs see the host's paths. */
  get isReduced(): boolean {
    return this.confinement.kind === 'reduced';
  }
}

/** The limits of a VM. A guest cannot make its QEMU write more than its disk, nor a template more than its memory. */
function limitsOf({ shape, files }: JailedStart): JailLimits {
  const { disks, workspace } = files;
  const scratchBytes = disks === undefined ? 0 : statSync(disks.scratchBasePath).size;
  const diskBytes = Math.max(scratchBytes, workspace?.source?.sizeBytes ?? 0);
  const limits = {
    openFiles: OPEN_FILES,
    fileSizeBytes: fileSizeFor(diskBytes, shape.memMiB * MIB),
    ...(workspace !== undefined && { fileSizeMaxBytes: LARGEST_FILE_BYTES }),
  };
  return isRoot() ? { ...limits, tasks: THREADS + shape.vcpus } : limits;
}

/** The files by which a process enters control groups. */
function procsOf(cgroups: readonly string[]): string[] {
  return cgroups.map((directory) => join(directory, 'cgroup.procs'));
}

function isRoot(): boolean {
  return process.getuid?.() === 0;
}
