import type { Socket } from 'node:net';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { CpuSetting } from '../../lib/cpu-setting.ts';
import type { Cpu } from '../vm/cpu.ts';
import {
  findUsage,
  isAlive,
  killAndWait,
  type ProcessIdentity,
  type ProcessUsage,
} from '../host/host-process.ts';
import { readBlockTraffic } from './block-traffic.ts';
import { CONSOLE_CHARDEV, SOCKETS, stateUri } from './qemu-arguments.ts';
import { buildCpuModel, parseExpansion } from './qemu-cpu.ts';
import { QemuDisk } from './qemu-disk.ts';
import { StateSaver } from './qemu-state.ts';
import { QemuWorkspace } from './qemu-workspace.ts';
import { QmpError, type QmpClient, type QmpEvent } from './qmp-client.ts';
import { fileSizeFor, raiseFileSize } from '../confinement/file-size-limit.ts';
import { connectWhenReady } from '../host/connect-when-ready.ts';
import type { WorkspaceDirectories } from '../vm/workspace-device.ts';
import { VmGoneError, type AgentPort, type BlockTraffic, type VmEnding, type VmHandle } from '../vm/vmm.ts';

const PORT_TIMEOUT_MS = 5000;
const CONSOLE_TAIL_BYTES = 16_384;

function stringField(value: unknown, field: string): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const found = (value as Record<string, unknown>)[field];
  return typeof found === 'string' ? found : undefined;
}

/** Directories, by the paths that QEMU sees. */
interface SeenDirectories {
  sockets: string;
  /** Undefined for a VM without disks. */
  overlays: string | undefined;
  workspace: WorkspaceDirectories | undefined;
}

export interface QemuVmParts {
  identity: ProcessIdentity;
  socketDirectory: string;
  seen: SeenDirectories;
  /** The top overlay; undefined for a VM without disks, and if it is not known. */
  top: number | undefined;
  qmp: QmpClient;
  log: Logger;
}

/** One QEMU process and its monitor. */
export class QemuVm implements VmHandle {
  readonly identity: ProcessIdentity;
  readonly disk: QemuDisk;
  readonly workspace: QemuWorkspace;
  readonly ended: Promise<VmEnding>;
  readonly #socketDirectory: string;
  readonly #state: StateSaver;
  readonly #qmp: QmpClient;
  readonly #log: Logger;
  readonly #ended = Promise.withResolvers<VmEnding>();
  /** A connection to the agent's data port from before the state was loaded, which no session has taken. */
  #data: Socket | undefined;
  #released = false;
  #isPaused = false;

  constructor({ identity, socketDirectory, seen, top, qmp, log }: QemuVmParts) {
    this.identity = identity;
    this.disk = new QemuDisk(qmp, seen.overlays, top);
    this.workspace = new QemuWorkspace({
      qmp,
      directories: seen.workspace,
      allowFileSize: (sizeBytes) => raiseFileSize(identity.pid, fileSizeFor(sizeBytes)),
    });
    this.#socketDirectory = socketDirectory;
    this.#state = new StateSaver({ qmp, socketDirectory, seenDirectory: seen.sockets });
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
    const socket = await this.#connect('data', PORT_TIMEOUT_MS);
    // The bytes belong to a session that no longer exists.
    this.#data = socket.on('error', () => socket.destroy()).resume();
    await this.#qmp.execute('migrate-incoming', { uri: stateUri(statePath) });
  }

  /** The first session gets the connection of {@link load}. */
  async connectAgent(port: AgentPort, timeoutMs: number): Promise<Socket> {
    const early = port === 'data' ? this.#data : undefined;
    if (early === undefined) return this.#connect(port, timeoutMs);
    this.#data = undefined;
    return early.destroyed ? this.#connect(port, timeoutMs) : early;
  }

  #connect(port: AgentPort, timeoutMs: number): Promise<Socket> {
    return connectWhenReady(join(this.#socketDirectory, SOCKETS[port]), {
      step: "the agent's port",
      timeoutMs,
      assertAlive: () => {
        if (!isAlive(this.identity)) throw new VmGoneError();
      },
    });
  }

  usage(): ProcessUsage | undefined {
    return findUsage(this.identity);
  }

  readBlockTraffic(): Promise<BlockTraffic> {
    return readBlockTraffic(this.#qmp);
  }

  async resolveCpu(setting: CpuSetting): Promise<Cpu> {
    const model = buildCpuModel(setting);
    return parseExpansion(await this.#qmp.execute('query-cpu-model-expansion', { type: 'static', model }));
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
   * Stops the guest. Throws `unavailable` if it is paused: the caller would start it too soon.
   */
  async stop(): Promise<void> {
    if (this.#isPaused)
      throw new AppError(
        'unavailable',
        'the sandbox is paused: the disk of its host is full, or its persistent disk waits for the object store',
      );
    await this.#qmp.execute('stop');
  }

  /** Starts the guest, also one that an earlier process had stopped and this one took for paused. */
  async start(): Promise<void> {
    this.#isPaused = false;
    await this.#qmp.execute('cont');
  }

  saveState(statePath: string, copyMemory?: () => Promise<void>): Promise<void> {
    return this.#state.save(statePath, copyMemory);
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
