/**
 * Protects the service when the file system fills up in spite of the reserve. VMs that write are paused while there is
 * still room for PostgreSQL, and continue when there is more room. If a VM hits the end of the disk before it is
 * paused, the VMM stops it and keeps the failed write pending. It continues in the same way.
 *
 *   reserve ──────── nothing new is created (disk-guard.ts); the disks of VMs are checked often
 *   reserve / 4 ──── paused VMs continue above this
 *   reserve / 8 ──── VMs whose disk has grown since the last check are paused below this
 */
import type { Logger } from 'pino';
import type { DiskGuard } from './disk-guard.ts';

const CALM_INTERVAL_MS = 1000;
const LOW_INTERVAL_MS = 100;
const CONTINUE_DIVISOR = 4;
const PAUSE_DIVISOR = 8;
/**
 * A disk grows by clusters of 64 KiB. Growth of less than half a cluster comes from the host: its file system adds
 * blocks for its own extent lists when it writes out data that the guest wrote long before.
 */
const HOST_GROWTH_BYTES = 32 << 10;

/** One VM and its disk. */
export interface WatchedVm {
  readonly unit: string;
  readonly isPaused: boolean;
  /** Bytes that its disk takes on the host; undefined when that cannot be read. */
  diskBytes: () => number | undefined;
  pause: () => Promise<void>;
  continue: () => Promise<void>;
}

export interface DiskWatchOptions {
  disk: DiskGuard;
  listVms: () => readonly WatchedVm[];
  log: Logger;
}

export class DiskWatch {
  readonly #options: DiskWatchOptions;
  #seenBytes = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: DiskWatchOptions) {
    this.#options = options;
    this.#schedule(CALM_INTERVAL_MS);
  }

  /** Checks once. Returns the delay until the next check, ms. */
  async look(): Promise<number> {
    const { disk, listVms } = this.#options;
    const { freeMiB, reserveMiB } = disk;
    const vms = listVms();
    if (freeMiB >= reserveMiB / CONTINUE_DIVISOR) await this.#continueAll(vms);
    if (freeMiB >= reserveMiB) {
      this.#seenBytes.clear();
      return CALM_INTERVAL_MS;
    }
    const growing = this.#findGrowing(vms);
    if (freeMiB < reserveMiB / PAUSE_DIVISOR) await this.#pauseAll(growing);
    return LOW_INTERVAL_MS;
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  #schedule(delayMs: number): void {
    this.#timer = setTimeout(() => void this.#lookAndGoOn(), delayMs);
    this.#timer.unref();
  }

  async #lookAndGoOn(): Promise<void> {
    let nextMs = CALM_INTERVAL_MS;
    try {
      nextMs = await this.look();
    } catch (error) {
      this.#options.log.error({ err: error }, 'could not check the free disk space');
    }
    if (!this.#isClosed) this.#schedule(nextMs);
  }

  #findGrowing(vms: readonly WatchedVm[]): WatchedVm[] {
    const seen = new Map<string, number>();
    const growing = vms.filter((vm) => {
      const bytes = vm.diskBytes();
      if (bytes === undefined) return false;
      seen.set(vm.unit, bytes);
      return !vm.isPaused && bytes > (this.#seenBytes.get(vm.unit) ?? Infinity) + HOST_GROWTH_BYTES;
    });
    this.#seenBytes = seen;
    return growing;
  }

  async #pauseAll(vms: readonly WatchedVm[]): Promise<void> {
    await this.#each(vms, 'pause', 'VM paused: the disk is nearly full');
  }

  async #continueAll(vms: readonly WatchedVm[]): Promise<void> {
    const paused = vms.filter((vm) => vm.isPaused);
    await this.#each(paused, 'continue', 'VM continues: the disk has room again');
  }

  /** A VM that cannot be paused or continued because it is ending must not affect the others. */
  async #each(vms: readonly WatchedVm[], action: 'pause' | 'continue', message: string): Promise<void> {
    const { log, disk } = this.#options;
    for (const vm of vms) {
      try {
        await vm[action]();
        log.warn({ unit: vm.unit, free_mib: disk.freeMiB }, message);
      } catch (error) {
        log.warn({ unit: vm.unit, err: error }, `could not make a VM ${action}`);
      }
    }
  }
}
