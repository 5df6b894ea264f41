/**
 * The registry of VMs by sandbox id, with the resources that each holds while it lives. It also watches the disk that
 * they write to.
 */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { VmEgress } from '../../lib/protocol/egress-protocol.ts';
import type { VmPhase } from '../../lib/protocol/metrics-protocol.ts';
import type { VmInfo } from '../../lib/protocol/runner-protocol.ts';
import { findVmRecord, writeVmRecord, type VmRecord } from '../vm/vm-record.ts';
import { imageKey, templateKey, type CacheLeases } from '../cache/cache-leases.ts';
import type { Capacity } from '../capacity/capacity.ts';
import type { Ballast } from '../capacity/ballast.ts';
import type { DiskGuard } from '../capacity/disk-guard.ts';
import { DiskWatch, type WatchedVm } from '../capacity/disk-watch.ts';
import { readGroupUsage } from '../confinement/cgroup-usage.ts';
import { findAllocatedBytes } from '../host/allocated-bytes.ts';
import type { VmDirectory } from '../disk/vm-directory.ts';
import type { VmNetwork } from '../network/vm-network.ts';
import type { EventSpool } from './event-spool.ts';
import { VmDriver } from './vm-driver.ts';
import type { AgentCounters, DriverHooks } from './vm-driver.types.ts';

export interface VmRosterOptions {
  network: Pick<VmNetwork, 'endEgress'>;
  leases: CacheLeases;
  spool: EventSpool;
  capacity: Pick<Capacity, 'release'>;
  disk: DiskGuard;
  ballast: Ballast;
  directoryOf: (unit: string) => VmDirectory;
  /** Called when nothing of that VM is left. */
  onGone: (unit: string) => void;
  log: Logger;
}

/** The cache entries that a VM was made from. A VM that continues from a capture has none, as it has its own files. */
export interface Held {
  imageDigest: string;
  template: string;
}

export interface DriverOrigin {
  info: VmInfo;
  egress: VmEgress;
  counters: AgentCounters;
  held: Held | undefined;
  cgroups: readonly string[];
}

export class VmRoster {
  readonly #options: VmRosterOptions;
  readonly #drivers = new Map<string, VmDriver>();
  readonly #creates = new Map<string, Promise<VmInfo>>();
  readonly #diskWatch: DiskWatch;

  constructor(options: VmRosterOptions) {
    this.#options = options;
    this.#diskWatch = new DiskWatch({
      disk: options.disk,
      listVms: () =>
        [...this.#drivers.values()].filter(({ isUp }) => isUp).map((driver) => this.#watched(driver)),
      log: options.log,
    });
  }

  #watched(driver: VmDriver): WatchedVm {
    const directory = this.directoryOf(driver);
    const topOf = (): number => driver.running.chain.numbers.at(-1) ?? 0;
    return {
      unit: driver.unit,
      isPaused: driver.isPaused && driver.heldFor === undefined,
      diskBytes: () => {
        const scratchBytes = findAllocatedBytes(directory.overlay(topOf()));
        return scratchBytes === undefined
          ? undefined
          : scratchBytes + (driver.running.workspace?.topBytes ?? 0);
      },
      pause: () => driver.pause(),
      continue: () => driver.continue(),
    };
  }

  list(): VmInfo[] {
    return [...this.#drivers.values()].map((driver) => driver.info);
  }

  get units(): string[] {
    return [...this.#drivers.values()].map((driver) => driver.unit);
  }

  get pausedCount(): number {
    return [...this.#drivers.values()].filter((driver) => driver.isPaused).length;
  }

  /** The VMs of sandboxes, by the id of the sandbox. */
  get byId(): ReadonlyMap<string, VmDriver> {
    return this.#drivers;
  }

  countByPhase(): Partial<Record<VmPhase, number>> {
    const counts: Partial<Record<VmPhase, number>> = {};
    for (const { phase } of this.#drivers.values()) counts[phase] = (counts[phase] ?? 0) + 1;
    return counts;
  }

  find(id: string): VmDriver | undefined {
    return this.#drivers.get(id);
  }

  get(id: string): VmDriver {
    const driver = this.#drivers.get(id);
    if (driver === undefined) throw new AppError('not_found', `there is no VM ${id}`);
    return driver;
  }

  /** Throws `not_found`, or `invalid_state` if the VM does not run. */
  getRunning(id: string): VmDriver {
    const driver = this.get(id);
    if (!driver.isUp) throw new AppError('invalid_state', `the sandbox is ${driver.phase}`);
    return driver;
  }

  directoryOf({ unit }: VmDriver): VmDirectory {
    return this.#options.directoryOf(unit);
  }

  /** Returns the record of a running VM. Throws `invalid_state` if there is none. */
  recordOf(driver: VmDriver): VmRecord {
    const record = findVmRecord(this.directoryOf(driver).path);
    if (record === undefined) throw new AppError('invalid_state', `the sandbox is ${driver.phase}`);
    return record;
  }

  /** Keys of the machines that VMs run on. A VM that is ending has no record once its directory is gone. */
  get machineKeys(): string[] {
    const records = [...this.#drivers.values()].map((driver) => findVmRecord(this.directoryOf(driver).path));
    return records.flatMap((record) => record?.machine ?? []);
  }

  /**
   * Runs a create. Joins a running create of the same id, and repeats the answer of a completed one. Throws
   * `invalid_state` if the sandbox has ended.
   */
  join(id: string, create: () => Promise<VmInfo>): Promise<VmInfo> {
    const joined = this.#creates.get(id);
    if (joined !== undefined) return joined;
    if (this.#options.spool.findEnd(id) !== undefined) {
      return Promise.reject(new AppError('invalid_state', `the sandbox ${id} has ended`));
    }
    const created = create();
    this.#creates.set(id, created);
    created.catch(() => this.#creates.delete(id));
    return created;
  }

  /** Makes the sandbox's id lead to that VM. */
  enter(driver: VmDriver): void {
    this.#drivers.set(driver.info.id, driver);
  }

  /** Makes creates of that id return this VM. */
  markCreated(info: VmInfo): void {
    this.#creates.set(info.id, Promise.resolve(info));
  }

  /** Opens the driver of a VM, which no id leads to yet, and registers the release of all that the VM holds here. */
  open(unit: string, { info, egress, counters, held, cgroups }: DriverOrigin): VmDriver {
    const { ballast, capacity, directoryOf, network, onGone, spool } = this.#options;
    const { path } = directoryOf(unit);
    const log = this.#options.log.child({ unit });
    const hooks: DriverHooks = {
      note: (change) => {
        if (change.end !== undefined && driver.info.state !== 'running') return;
        const record = findVmRecord(path);
        if (record === undefined) return;
        const write = (): void => writeVmRecord(path, { ...record, ...change });
        if (change.end === undefined) write();
        else ballast.useSync(write);
      },
      groupUsage: () => readGroupUsage(cgroups),
      findRollback: () => findVmRecord(path)?.rollbacks.at(-1),
      endEgress: () => network.endEgress(unit),
      // A failed create is reported to its caller; only a VM that ran has an end to report.
      recordEnd: async (end) => {
        if (driver.info.state === 'running' && spool.findEnd(end.id) === undefined) await spool.add(end);
        log.info({ vm: end.id, reason: end.reason, cpu_ms: end.cpu_ms }, 'VM ended');
      },
    };
    const driver = new VmDriver(unit, { info, egress, counters, hooks, log });
    if (held !== undefined) driver.onRelease(this.#holdCache(held));
    // Registered early, so it runs late: when nothing of the VM is left.
    driver.onRelease(() => {
      capacity.release(unit);
      this.#forget(driver);
      onGone(unit);
    });
    return driver;
  }

  /** A slow end must not remove what a later create made under the same id. */
  #forget(driver: VmDriver): void {
    const { id } = driver.info;
    if (this.#drivers.get(id) !== driver) return;
    this.#drivers.delete(id);
    this.#creates.delete(id);
  }

  /** Holds the cache entries. Returns the function that releases them. It runs last, as a VM's files link to them. */
  #holdCache({ imageDigest, template }: Held): () => void {
    const lease = this.#options.leases.open();
    lease.add(imageKey(imageDigest));
    lease.add(templateKey(template));
    return () => lease.release();
  }

  stopWatching(): void {
    this.#diskWatch.close();
  }

  /** Releases the VMs, which keep running. */
  detachAll(): void {
    for (const driver of this.#drivers.values()) driver.detach();
  }
}
