import type { Socket } from 'node:net';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { parseExpansion, type AskedCpu, type Cpu } from '../vm/cpu.ts';
import {
  findUsage,
  isAlive,
  killAndWait,
  type ProcessIdentity,
  type ProcessUsage,
} from '../host/host-process.ts';
import { CONSOLE_CHARDEV, overlayNode, overlayNodes, stateUri } from './qemu-arguments.ts';
import { overlayName, SOCKETS } from '../vm/vm-files.ts';
import { findPortsDevice, readHandedOver } from './qemu-ports.ts';
import { closeOverlay, flattenOverlays, readChain, stopFlattening } from './qemu-overlays.ts';
import { QmpError, type QmpClient, type QmpEvent } from './qmp-client.ts';
import { connectWhenReady } from '../host/connect-when-ready.ts';
import type { VmEnding, VmHandle } from '../vm/vmm.ts';

const PORT_TIMEOUT_MS = 5000;
const CONSOLE_TAIL_BYTES = 16_384;

function stringField(value: unknown, field: string): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const found = (value as Record<string, unknown>)[field];
  return typeof found === 'string' ? found : undefined;
}

/** Directories, by the paths that QEMU sees. */
export interface SeenDirectories {
  sockets: string;
  /** Undefined for a VM without disks. */
  overlays: string | undefined;
}

export interface QemuVmParts {
  identity: ProcessIdentity;
  socketDirectory: string;
  seen: SeenDirectories;
  qmp: QmpClient;
  log: Logger;
}

/** One QEMU process and its monitor. */
export class QemuVm implements VmHandle {
  readonly identity: ProcessIdentity;
  readonly socketDirectory: string;
  readonly ended: Promise<VmEnding>;
  readonly #seen: SeenDirectories;
  readonly #qmp: QmpClient;
  readonly #log: Logger;
  readonly #ended = Promise.withResolvers<VmEnding>();
  #data: Socket | undefined;
  #portsDevice: string | undefined;
  #released = false;
  #isPaused = false;

  constructor({ identity, socketDirectory, seen, qmp, log }: QemuVmParts) {
    this.identity = identity;
    this.socketDirectory = socketDirectory;
    this.#seen = seen;
    this.ended = this.#ended.promise;
    this.#qmp = qmp;
    this.#log = log;
    qmp.on('event', (event) => this.#onEvent(event));
    qmp.on('close', () => {
      if (!this.#released) this.#ended.resolve('vmm_lost');
    });
  }

  /**
   * Loads a saved state, by its path as QEMU sees it, with a reader on the agent's data port. QEMU continues to send
   * what the guest was sending on that port when it was saved. Without a reader QEMU blocks the port and never notices
   * a later reader: the guest could not send anything on it any more.
   */
  async load(statePath: string): Promise<void> {
    const socket = await connectWhenReady(join(this.socketDirectory, SOCKETS.data), {
      step: "the agent's data port",
      timeoutMs: PORT_TIMEOUT_MS,
      assertAlive: () => {
        if (!isAlive(this.identity)) throw new AppError('guest_unreachable', 'the VM ended');
      },
    });
    // The bytes belong to a session that no longer exists.
    this.#data = socket.on('error', () => socket.destroy()).resume();
    await this.#qmp.execute('migrate-incoming', { uri: stateUri(statePath) });
  }

  takeDataSocket(): Socket | undefined {
    const socket = this.#data;
    this.#data = undefined;
    return socket?.destroyed === true ? undefined : socket;
  }

  usage(): ProcessUsage | undefined {
    return findUsage(this.identity);
  }

  async expandCpu(asked: AskedCpu): Promise<Cpu> {
    const answer = await this.#qmp.execute('query-cpu-model-expansion', { type: 'static', model: asked });
    return parseExpansion(answer);
  }

  get isPaused(): boolean {
    return this.#isPaused;
  }

  async pause(): Promise<void> {
    await this.#qmp.execute('stop');
    this.#isPaused = true;
  }

  /** Continues the VM. QEMU retries a request that failed because the disk was full. */
  async continue(): Promise<void> {
    this.#isPaused = false;
    await this.#qmp.execute('cont');
  }

  /** Returns QEMU's run state: `running`, `paused`, `inmigrate`, `shutdown`, … */
  async status(): Promise<string> {
    return stringField(await this.#qmp.execute('query-status'), 'status') ?? 'unknown';
  }

  /**
   * Stops the guest. Throws `unavailable` if it is paused for lack of disk space: the caller would start it too soon.
   */
  async stop(): Promise<void> {
    if (this.#isPaused)
      throw new AppError('unavailable', 'the sandbox is paused because the disk of its host is full');
    await this.#qmp.execute('stop');
  }

  /** Starts the guest, also one that an earlier process had stopped and this one took for paused. */
  async start(): Promise<void> {
    this.#isPaused = false;
    await this.#qmp.execute('cont');
  }

  async readHandedOver(): Promise<string> {
    this.#portsDevice ??= await findPortsDevice(this.#qmp);
    return readHandedOver(this.#qmp, this.#portsDevice);
  }

  /** Saves into the socket directory, the only place where QEMU may create a file. With `live` QEMU would run on. */
  async saveDevices(name: string): Promise<void> {
    const filename = join(this.#seen.sockets, name);
    await this.#qmp.execute('xen-save-devices-state', { filename, live: false });
  }

  async openOverlay(number: number): Promise<void> {
    const path = join(this.#seen.overlays ?? '', overlayName(number));
    for (const node of overlayNodes(number, { path, backing: null, isFrozen: false }))
      await this.#qmp.execute('blockdev-add', node);
  }

  async resizeOverlay(number: number, sizeBytes: number): Promise<void> {
    await this.#qmp.execute('block_resize', { 'node-name': overlayNode(number), size: sizeBytes });
  }

  async putOnTop(number: number, below: number): Promise<void> {
    await this.#qmp.execute('blockdev-snapshot', { node: overlayNode(below), overlay: overlayNode(number) });
  }

  closeOverlay(number: number): Promise<void> {
    return closeOverlay(this.#qmp, number);
  }

  flatten(top: number): Promise<void> {
    return flattenOverlays(this.#qmp, top);
  }

  stopFlattening(): Promise<void> {
    return stopFlattening(this.#qmp);
  }

  readChain(): Promise<number[]> {
    return readChain(this.#qmp);
  }

  async kill(): Promise<void> {
    this.#released = true;
    this.#data?.destroy();
    await killAndWait(this.identity);
    this.#qmp.close();
  }

  detach(): void {
    this.#released = true;
    this.#data?.destroy();
    this.#qmp.close();
  }

  async consoleTail(): Promise<string> {
    const text = await this.#qmp.execute('ringbuf-read', {
      device: CONSOLE_CHARDEV,
      size: CONSOLE_TAIL_BYTES,
    });
    return typeof text === 'string' ? text : '';
  }

  /** Returns why a VM stopped for good. Called when it stops, and when a restarted runner finds it stopped. */
  async classifyShutdown(): Promise<VmEnding> {
    try {
      return (await this.consoleTail()).includes('Kernel panic - not syncing')
        ? 'guest_panic'
        : 'guest_shutdown';
    } catch (error) {
      if (!(error instanceof QmpError)) throw error;
      return 'vmm_lost';
    }
  }

  #onEvent(event: QmpEvent): void {
    if (this.#released) return;
    if (event.event === 'SHUTDOWN') this.#resolveShutdown();
    else if (event.event === 'BLOCK_IO_ERROR') this.#onDiskError(event);
  }

  #onDiskError({ data }: QmpEvent): void {
    if (data['action'] === 'stop') this.#isPaused = true;
    const { nospace, operation, action } = data;
    this.#log.warn(
      { pid: this.identity.pid, nospace, operation, action },
      'a host disk failed a request of a VM',
    );
  }

  #resolveShutdown(): void {
    this.classifyShutdown().then(
      (ending) => this.#ended.resolve(ending),
      (error: unknown) => {
        this.#log.warn({ err: error }, 'console of a VM that shut down could not be read');
        this.#ended.resolve('vmm_lost');
      },
    );
  }

  /** Reads the state of an adopted VM: it may have shut down, or be paused for lack of disk space. */
  async checkAdopted(): Promise<void> {
    if (!isAlive(this.identity)) this.#ended.resolve('vmm_lost');
    else {
      const status = await this.status();
      if (status === 'shutdown') this.#resolveShutdown();
      this.#isPaused = status === 'paused' || status === 'io-error';
    }
  }
}
