import type { ChildProcess } from 'node:child_process';
import { closeSync, constants, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { DeadlineError, pollUntil } from '../../lib/deadline.ts';
import type { Jail } from '../confinement/jail.ts';
import { isJailed } from '../confinement/jailed-process.ts';
import { INSIDE } from '../confinement/vm-layout.ts';
import { findIdentity, isAlive, killAndWait, type ProcessIdentity } from './host-process.ts';
import { KVM_CHILD_FD, SOCKETS, TAP_CHILD_FD, type QemuOptions, type StartMode } from './qemu-arguments.ts';
import { QemuVm, type QemuVmParts } from './qemu-vm.ts';
import { QmpClient } from './qmp-client.ts';
import { connectWhenReady } from './socket.ts';
import type { SavedState, VmDirectories, VmLaunch, Vmm } from './vmm.ts';

const MONITOR_TIMEOUT_MS = 15_000;
const INCOMING_TIMEOUT_MS = 15_000;
const MESSAGES_LIMIT = 2000;

export interface QemuTools {
  jail: Jail;
  tscKhz: number;
}

/** QEMU ended while it was being started; the message holds the end of what it said. */
export class VmmStartError extends Error {
  constructor(messages: string, options?: ErrorOptions) {
    super(`QEMU did not start: ${messages.trim() || 'it said nothing'}`, options);
    this.name = 'VmmStartError';
  }
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
    const { ramPath, statePath, wasBusy: isDeferred } = saved;
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
    const { sockets: socketDirectory, overlays } = directories;
    const inside = { sockets: INSIDE.sockets, overlays: INSIDE.overlays };
    const vm = await this.#connect(
      { identity, messagesPath: join(socketDirectory, 'messages') },
      { socketDirectory, seen: isJailed(identity.pid) ? inside : { sockets: socketDirectory, overlays } },
    );
    await vm.checkAdopted();
    return vm;
  }

  async #start(launch: VmLaunch, ramPath: string, mode: StartMode): Promise<QemuVm> {
    const options: QemuOptions = {
      name: launch.id,
      shape: launch.shape,
      network: launch.openTap !== undefined,
      tscKhz: this.#tools.tscKhz,
      mode,
      files: {
        kernelPath: launch.machine.kernelPath,
        initramfsPath: launch.machine.initramfsPath,
        ramPath,
        socketDirectory: launch.socketDirectory,
        disks: launch.disks,
      },
    };
    const started = await this.#spawn(launch, options);
    const { socketDirectory } = launch;
    const { files, mode: seenMode } = this.#tools.jail.arrange(options);
    const seen = { sockets: files.socketDirectory, overlays: files.disks?.overlayDirectory };
    try {
      const vm = await this.#connect(started, { socketDirectory, seen });
      if (seenMode.kind === 'restore' && seenMode.isDeferred) await vm.load(seenMode.statePath);
      return vm;
    } catch (error) {
      await killAndWait(started.identity);
      throw new VmmStartError(readMessages(started.messagesPath), { cause: error });
    }
  }

  async #spawn(launch: VmLaunch, options: QemuOptions): Promise<StartedQemu> {
    const messagesPath = join(launch.socketDirectory, 'messages');
    const opened: number[] = [];
    const open = (path: string, flags: string): number => {
      const descriptor = openSync(path, flags, 0o600);
      opened.push(descriptor);
      return descriptor;
    };
    try {
      const messages = open(messagesPath, 'w');
      const descriptors: (number | 'ignore')[] = [messages, messages, 'ignore', 'ignore'];
      if (launch.openTap !== undefined) {
        const tap = launch.openTap();
        opened.push(tap);
        descriptors[TAP_CHILD_FD - 1] = tap;
      }
      if (launch.shape.accelerator === 'kvm') descriptors[KVM_CHILD_FD - 1] = open('/dev/kvm', 'r+');
      const { machine, uid, cgroupProcs } = launch;
      const child = this.#tools.jail.spawn(options, { machine, uid, cgroupProcs, descriptors });
      return { identity: await identityOf(child), messagesPath };
    } finally {
      for (const descriptor of opened) closeSync(descriptor);
    }
  }

  async #connect(
    started: StartedQemu,
    directories: Pick<QemuVmParts, 'socketDirectory' | 'seen'>,
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

/** QEMU's user owns the directory: what is there now need not be the file that was made, nor any file. */
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
