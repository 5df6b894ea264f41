import { basename, dirname, join } from 'node:path';
import type { Logger } from 'pino';
import { findUsage, isAlive, killAndWait, type ProcessIdentity, type ProcessUsage } from './host-process.ts';
import { CONSOLE_CHARDEV } from './qemu-arguments.ts';
import { QmpError, type QmpClient, type QmpEvent } from './qmp-client.ts';
import type { VmEnding, VmHandle } from './vmm.ts';

const CONSOLE_TAIL_BYTES = 16_384;

function stringField(value: unknown, field: string): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const found = (value as Record<string, unknown>)[field];
  return typeof found === 'string' ? found : undefined;
}

export interface QemuVmParts {
  identity: ProcessIdentity;
  socketDirectory: string;
  /** The same directory by the path that QEMU has for it; unknown for a VM that was adopted. */
  socketDirectorySeen: string | undefined;
  qmp: QmpClient;
  log: Logger;
}

/** One QEMU process and its monitor. */
export class QemuVm implements VmHandle {
  readonly identity: ProcessIdentity;
  readonly socketDirectory: string;
  readonly ended: Promise<VmEnding>;
  readonly #socketDirectorySeen: string | undefined;
  readonly #qmp: QmpClient;
  readonly #log: Logger;
  readonly #ended = Promise.withResolvers<VmEnding>();
  #released = false;
  #isPaused = false;

  constructor({ identity, socketDirectory, socketDirectorySeen, qmp, log }: QemuVmParts) {
    this.identity = identity;
    this.socketDirectory = socketDirectory;
    this.#socketDirectorySeen = socketDirectorySeen;
    this.ended = this.#ended.promise;
    this.#qmp = qmp;
    this.#log = log;
    qmp.on('event', (event) => this.#onEvent(event));
    qmp.on('close', () => {
      if (!this.#released) this.#ended.resolve('vmm_lost');
    });
  }

  usage(): ProcessUsage | undefined {
    return findUsage(this.identity);
  }

  get isPaused(): boolean {
    return this.#isPaused;
  }

  async pause(): Promise<void> {
    await this.#qmp.execute('stop');
    this.#isPaused = true;
  }

  /** A request that found the disk full is tried again by QEMU. */
  async continue(): Promise<void> {
    this.#isPaused = false;
    await this.#qmp.execute('cont');
  }

  /** `running`, `paused`, `inmigrate`, `shutdown`, … as QEMU names them. */
  async status(): Promise<string> {
    return stringField(await this.#qmp.execute('query-status'), 'status') ?? 'unknown';
  }

  /**
   * Stops the VM and writes the state of its devices (not RAM) to a file in the socket directory, the only place where
   * QEMU may make one. `live=false`, or QEMU would go on running.
   */
  async saveTemplate(statePath: string): Promise<void> {
    const seen = this.#socketDirectorySeen;
    if (seen === undefined || dirname(statePath) !== this.socketDirectory)
      throw new Error(`this VM cannot write ${statePath}`);
    await this.#qmp.execute('stop');
    const filename = join(seen, basename(statePath));
    await this.#qmp.execute('xen-save-devices-state', { filename, live: false });
  }

  async kill(): Promise<void> {
    this.#released = true;
    await killAndWait(this.identity);
    this.#qmp.close();
  }

  detach(): void {
    this.#released = true;
    this.#qmp.close();
  }

  /** The last lines the guest's kernel wrote; never shown to a caller, the guest writes what it likes. */
  async consoleTail(): Promise<string> {
    const text = await this.#qmp.execute('ringbuf-read', {
      device: CONSOLE_CHARDEV,
      size: CONSOLE_TAIL_BYTES,
    });
    return typeof text === 'string' ? text : '';
  }

  /** What a VM that is paused for good ended by: asked when it stops and when a restarted runner finds it so. */
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
    this.#log.warn({ pid: this.identity.pid, nospace, operation, action }, 'a disk of the host failed a VM');
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

  /** Finds out how a VM stands that is adopted: it may have shut down, or been paused for want of disk. */
  async checkAdopted(): Promise<void> {
    if (!isAlive(this.identity)) this.#ended.resolve('vmm_lost');
    else {
      const status = await this.status();
      if (status === 'shutdown') this.#resolveShutdown();
      this.#isPaused = status === 'paused' || status === 'io-error';
    }
  }
}

export function socketPath(directory: string, name: string): string {
  return join(directory, name);
}
