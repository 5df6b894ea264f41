/**
 * The VMs that there are, by their sandboxes' ids, with what each of them holds for as long as it lives. Looks after all
 * of them: counts what they use, and watches the disk that they write to.
 */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { VmEgress } from '../../lib/protocol/egress-protocol.ts';
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
import { VmDriver, type AgentCounters, type DriverHooks } from './vm-driver.ts';

const SAMPLE_INTERVAL_MS = 15_000;

export interface VmRosterOptions {
  network: Pick<VmNetwork, 'endEgress'>;
  leases: CacheLeases;
  spool: EventSpool;
  capacity: Pick<Capacity, 'release'>;
  disk: DiskGuard;
  ballast: Ballast;
  directoryOf: (unit: string) => VmDirectory;
  /** Nothing of that VM is left. */
  onGone: (unit: string) => void;
  log: Logger;
}

/** What of the cache a VM was made from: none of it for one that goes on from a capture, which has files of its own. */
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
  readonly #sampler: NodeJS.Timeout;
  readonly #diskWatch: DiskWatch;

  constructor(options: VmRosterOptions) {
    this.#options = options;
    this.#sampler = setInterval(() => {
      for (const driver of this.#drivers.values()) driver.sampleUsage();
    }, SAMPLE_INTERVAL_MS);
    this.#sampler.unref();
    this.#diskWatch = new DiskWatch({
      disk: options.disk,
      listVms: () =>
        [...this.#drivers.values()]
          .filter(({ state }) => state === 'running')
          .map((driver) => this.#watched(driver)),
      log: options.log,
    });
  }

  #watched(driver: VmDriver): WatchedVm {
    const directory = this.directoryOf(driver);
    const topOf = (): number => driver.running.chain.numbers.at(-1) ?? 0;
    return {
      unit: driver.unit,
      isPaused: driver.isPaused,
      diskBytes: () => findAllocatedBytes(directory.overlay(topOf())),
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

  find(id: string): VmDriver | undefined {
    return this.#drivers.get(id);
  }

  get(id: string): VmDriver {
    const driver = this.#drivers.get(id);
    if (driver === undefined) throw new AppError('not_found', `there is no VM ${id}`);
    return driver;
  }

  /** Throws `invalid_state` for one that does not run. */
  getRunning(id: string): VmDriver {
    const driver = this.get(id);
    if (driver.state !== 'running') throw new AppError('invalid_state', `the sandbox is ${driver.state}`);
    return driver;
  }

  directoryOf({ unit }: VmDriver): VmDirectory {
    return this.#options.directoryOf(unit);
  }

  /** What is known of a VM that runs. */
  recordOf(driver: VmDriver): VmRecord {
    const record = findVmRecord(this.directoryOf(driver).path);
    if (record === undefined) throw new AppError('invalid_state', `the sandbox is ${driver.state}`);
    return record;
  }

  /** Of the machines that VMs run on; one that is being ended has none when its directory is gone. */
  get machineKeys(): string[] {
    const records = [...this.#drivers.values()].map((driver) => findVmRecord(this.directoryOf(driver).path));
    return records.flatMap((record) => record?.machine ?? []);
  }

  /** Joins a create of the same id that is under way, and answers one that is done. */
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

  /** Its sandbox's id leads to that VM from here on. */
  enter(driver: VmDriver): void {
    this.#drivers.set(driver.info.id, driver);
  }

  /** A create of that id is answered with this VM from here on. */
  markCreated(info: VmInfo): void {
    this.#creates.set(info.id, Promise.resolve(info));
  }

  /** The driver of a VM, which no id leads to yet, with the undoing of all that it holds here. */
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
      // A create that failed is answered to its caller; only a VM that ran has an end to report.
      recordEnd: async (end) => {
        if (driver.info.state === 'running' && spool.findEnd(end.id) === undefined) await spool.add(end);
        log.info({ vm: end.id, reason: end.reason, cpu_ms: end.cpu_ms }, 'VM ended');
      },
    };
    const driver = new VmDriver(unit, { info, egress, counters, hooks, log });
    if (held !== undefined) driver.onRelease(this.#holdCache(held));
    // Early in the list, so late to be done: when nothing of the VM is left.
    driver.onRelease(() => {
      capacity.release(unit);
      this.#forget(driver);
      onGone(unit);
    });
    return driver;
  }

  /** An end that took long must not take away what a later create made under the same id. */
  #forget(driver: VmDriver): void {
    const { id } = driver.info;
    if (this.#drivers.get(id) !== driver) return;
    this.#drivers.delete(id);
    this.#creates.delete(id);
  }

  /** Returns what lets go: the last that is released, as a VM's files lead to them. */
  #holdCache({ imageDigest, template }: Held): () => void {
    const lease = this.#options.leases.open();
    lease.add(imageKey(imageDigest));
    lease.add(templateKey(template));
    return () => lease.release();
  }

  stopWatching(): void {
    clearInterval(this.#sampler);
    this.#diskWatch.close();
  }

  /** Lets go of the VMs, which run on. */
  detachAll(): void {
    for (const driver of this.#drivers.values()) driver.detach();
  }
}
