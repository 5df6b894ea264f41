import type { ChildProcess } from 'node:child_process';
import { closeSync, constants, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { DeadlineError, pollUntil } from '../../lib/waiting/deadline.ts';
import type { Jail } from '../confinement/jail.ts';
import type { Machine, MachineStore } from '../machine/machine-store.ts';
import { invariant } from '../../lib/invariant.ts';
import { isJailed } from '../confinement/jailed-process.ts';
import {
  INSIDE,
  WORKSPACE_INSIDE,
  type MachineFiles,
  type StartMode,
  type VmLayout,
} from '../confinement/vm-layout.ts';
import { findIdentity, isAlive, killAndWait, type ProcessIdentity } from '../host/host-process.ts';
import { buildQemuArguments, KVM_CHILD_FD, SOCKETS, TAP_CHILD_FD } from './qemu-arguments.ts';
import { QemuVm, type QemuVmParts } from './qemu-vm.ts';
import { QmpClient } from './qmp-client.ts';
import { connectWhenReady } from '../host/connect-when-ready.ts';
import { VmmStartError, type SavedState, type VmDirectories, type VmLaunch, type Vmm } from '../vm/vmm.ts';

const MONITOR_TIMEOUT_MS = 15_000;
const INCOMING_TIMEOUT_MS = 15_000;
const MESSAGES_LIMIT = 2000;
/** The launcher's words, before there is a QEMU. */
const NO_TAP = /opening TAP/u;

export interface QemuTools {
  jail: Jail;
  machines: Pick<MachineStore, 'find'>;
  tscKhz: number;
}

interface StartedQemu {
  identity: ProcessIdentity;
  messagesPath: string;
}

export class Qemu implements Vmm {
  readonly #tools: QemuTools;
  readonly #log: Logger;

  constructor(tools: QemuTools, log: Logger) {
    this.#tools = tools;
    this.#log = log;
  }

  async boot(launch: VmLaunch, ramPath: string): Promise<QemuVm> {
    return this.#start(launch, ramPath, { kind: 'boot' });
  }

  async restore(launch: VmLaunch, saved: SavedState, { ownsRam } = { ownsRam: false }): Promise<QemuVm> {
    const { ramPath, statePath, wasBusy } = saved;
    const isDeferred = wasBusy || launch.workspace?.source !== undefined;
    const vm = await this.#start(launch, ramPath, { kind: 'restore', statePath, isDeferred, ownsRam });
    try {
      await pollUntil(
        { step: 'loading the device state', timeoutMs: INCOMING_TIMEOUT_MS, intervalMs: 1 },
        async () => ((await vm.status()) === 'inmigrate' ? undefined : true),
      );
      return vm;
    } catch (error) {
      await vm.kill();
      if (error instanceof DeadlineError) throw error;
      throw new VmmStartError(readMessages(join(launch.socketDirectory, 'messages')), { cause: error });
    }
  }

  async adopt(identity: ProcessIdentity, directories: VmDirectories): Promise<QemuVm | undefined> {
    if (!isAlive(identity)) return undefined;
    const { sockets: socketDirectory, overlays, workspace } = directories;
    const inside = { sockets: INSIDE.sockets, overlays: INSIDE.overlays, workspace: WORKSPACE_INSIDE };
    const vm = await this.#connect(
      { identity, messagesPath: join(socketDirectory, 'messages') },
      {
        socketDirectory,
        seen: isJailed(identity.pid) ? inside : { sockets: socketDirectory, overlays, workspace },
        top: undefined,
      },
    );
    await vm.checkAdopted();
    return vm;
  }

  async #start(launch: VmLaunch, ramPath: string, mode: StartMode): Promise<QemuVm> {
    const { socketDirectory, disks, workspace } = launch;
    const machine = this.#tools.machines.find(launch.machine);
    invariant(machine, `the machine ${launch.machine} does not exist`);
    const { kernelPath, initramfsPath } = machine;
    const files = { kernelPath, initramfsPath, ramPath, socketDirectory, disks, workspace };
    const layout = this.#tools.jail.arrange(files, mode);
    const started = await this.#spawn(launch, machine, { files, layout });
    const seen = {
      sockets: layout.files.socketDirectory,
      overlays: layout.files.disks?.overlayDirectory,
      workspace: layout.files.workspace,
    };
    try {
      const vm = await this.#connect(started, { socketDirectory, seen, top: disks?.overlays.at(-1) });
      if (workspace?.source !== undefined) await vm.workspace.insert(workspace.source);
      if (layout.mode.kind === 'restore' && layout.mode.isDeferred) await vm.load(layout.mode.statePath);
      return vm;
    } catch (error) {
      await killAndWait(started.identity);
      const said = readMessages(started.messagesPath);
      // Not the guest's end: another try would find the same.
      if (NO_TAP.test(said)) throw new AppError('internal', said.trim(), { cause: error });
      throw new VmmStartError(said, { cause: error });
    }
  }

  async #spawn(
    launch: VmLaunch,
    machine: Machine,
    { files, layout }: { files: MachineFiles; layout: VmLayout },
  ): Promise<StartedQemu> {
    const { shape, uid, cgroups } = launch;
    const messagesPath = join(launch.socketDirectory, 'messages');
    const args = buildQemuArguments({
      name: launch.id,
      shape,
      network: launch.tap !== undefined,
      tscKhz: this.#tools.tscKhz,
      files: layout.files,
      mode: layout.mode,
    });
    const opened: number[] = [];
    const open = (path: string, flags: string): number => {
      const descriptor = openSync(path, flags, 0o600);
      opened.push(descriptor);
      return descriptor;
    };
    try {
      const messages = open(messagesPath, 'w');
      const descriptors: (number | 'ignore')[] = [messages, messages, 'ignore', 'ignore'];
      // The launcher puts the TAP there; until then nothing else in it may get the number.
      if (launch.tap !== undefined) descriptors[TAP_CHILD_FD - 1] = open('/dev/null', 'r');
      const tap = launch.tap === undefined ? undefined : { name: launch.tap, descriptor: TAP_CHILD_FD };
      if (shape.accelerator === 'kvm') descriptors[KVM_CHILD_FD - 1] = open('/dev/kvm', 'r+');
      const start = { shape, files, layout, args, machine, uid, cgroups, tap, descriptors };
      return { identity: await identityOf(this.#tools.jail.spawn(start)), messagesPath };
    } finally {
      for (const descriptor of opened) closeSync(descriptor);
    }
  }

  async #connect(
    started: StartedQemu,
    directories: Pick<QemuVmParts, 'socketDirectory' | 'seen' | 'top'>,
  ): Promise<QemuVm> {
    const socket = await connectWhenReady(join(directories.socketDirectory, SOCKETS.qmp), {
      step: "QEMU's monitor",
      timeoutMs: MONITOR_TIMEOUT_MS,
      assertAlive: () => {
        if (!isAlive(started.identity)) throw new VmmStartError(readMessages(started.messagesPath));
      },
    });
    const qmp = await QmpClient.open(socket);
    return new QemuVm({ identity: started.identity, ...directories, qmp, log: this.#log });
  }
}

async function identityOf(child: ChildProcess): Promise<ProcessIdentity> {
  const spawned = Promise.withResolvers<undefined>();
  child.once('spawn', () => spawned.resolve(undefined));
  child.once('error', (error) => spawned.reject(new VmmStartError(error.message, { cause: error })));
  await spawned.promise;
  child.unref();
  const identity = child.pid === undefined ? undefined : findIdentity(child.pid);
  if (identity === undefined) throw new VmmStartError('it ended at once');
  return identity;
}

/** QEMU's user owns the directory: the path may no longer hold the file that was created, nor any regular file. */
const READ_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

function readMessages(path: string): string {
  try {
    const descriptor = openSync(path, READ_FLAGS);
    try {
      return readFileSync(descriptor, 'utf8').slice(-MESSAGES_LIMIT);
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    return `(its messages cannot be read: ${String(error)})`;
  }
}
