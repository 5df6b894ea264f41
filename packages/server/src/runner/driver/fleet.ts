/** All VMs of this runner: creates, finds, ends and adopts them. */
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { CreateVm, VmEnd, VmInfo } from '../../lib/runner-protocol.ts';
import { findVmRecord, writeVmRecord, type VmRecord } from '../adopt/vm-record.ts';
import { hostBootId, killAndWait, listProcessesOfUids } from '../vmm/host-process.ts';
import type { EventSpool } from './event-spool.ts';
import { VmCreation, type CreationParts } from './vm-creation.ts';
import { VmDriver } from './vm-driver.ts';

const SAMPLE_INTERVAL_MS = 15_000;

export interface FleetOptions extends CreationParts {
  spool: EventSpool;
  log: Logger;
}

export class Fleet {
  readonly #options: FleetOptions;
  readonly #drivers = new Map<string, VmDriver>();
  readonly #creates = new Map<string, Promise<VmInfo>>();
  readonly #sampler: NodeJS.Timeout;

  constructor(options: FleetOptions) {
    this.#options = options;
    for (const parent of [options.vmsDirectory, options.socketsDirectory])
      mkdirSync(parent, { recursive: true, mode: 0o711 });
    this.#sampler = setInterval(() => {
      for (const driver of this.#drivers.values()) driver.sampleUsage();
    }, SAMPLE_INTERVAL_MS);
    this.#sampler.unref();
  }

  list(): VmInfo[] {
    return [...this.#drivers.values()].map((driver) => driver.info);
  }

  find(id: string): VmDriver | undefined {
    return this.#drivers.get(id);
  }

  /** Joins a create of the same id that is under way, and answers one that is done. */
  create(id: string, request: CreateVm): Promise<VmInfo> {
    const joined = this.#creates.get(id);
    if (joined !== undefined) return joined;
    if (this.#options.spool.findEnd(id) !== undefined) {
      return Promise.reject(new AppError('invalid_state', `the VM ${id} has ended`));
    }
    const created = this.#create(id, request);
    this.#creates.set(id, created);
    created.catch(() => this.#creates.delete(id));
    return created;
  }

  async #create(id: string, request: CreateVm): Promise<VmInfo> {
    const creation = new VmCreation(id, request, this.#options);
    const image = await creation.resolveImage();
    const driver = this.#newDriver(creation.info, 0);
    const work = creation.run(driver, image);
    driver.trackCreation(work);
    try {
      await work;
      this.#options.log.info({ vm: id, timings_ms: driver.info.timings_ms }, 'VM created');
      return driver.info;
    } catch (error) {
      await driver.end('vmm_lost');
      throw error;
    }
  }

  #newDriver(info: VmInfo, generation: number): VmDriver {
    const { spool, vmsDirectory } = this.#options;
    const directory = join(vmsDirectory, info.id);
    const log = this.#options.log.child({ vm: info.id });
    const driver = new VmDriver(
      info,
      generation,
      {
        saveGeneration: (next) => {
          const record = findVmRecord(directory);
          if (record !== undefined) writeVmRecord(directory, { ...record, generation: next });
        },
        // A create that failed is answered to its caller; only a VM that ran has an end to report.
        recordEnd: (end) => {
          if (info.state === 'running') spool.add(end);
          log.info({ reason: end.reason, cpu_ms: end.cpu_ms }, 'VM ended');
        },
      },
      log,
    );
    driver.onRelease(() => {
      this.#drivers.delete(info.id);
      this.#creates.delete(info.id);
    });
    this.#drivers.set(info.id, driver);
    return driver;
  }

  /** Ends a VM. Answers again until control has acknowledged the end, then 404. */
  async destroy(id: string): Promise<VmEnd> {
    const driver = this.#drivers.get(id);
    if (driver !== undefined) return driver.end('destroyed');
    const end = this.#options.spool.findEnd(id);
    if (end === undefined) throw new AppError('not_found', `there is no VM ${id}`);
    return end;
  }

  /**
   * Takes over what an earlier runner process left: VMs that still run are driven on, the others are ended
   * and reported, and no process of our uids is left that nobody drives.
   */
  async adoptAll(): Promise<void> {
    const adopted = new Set<number>();
    for (const id of readdirSync(this.#options.vmsDirectory)) {
      const pid = await this.#adopt(id);
      if (pid !== undefined) adopted.add(pid);
    }
    const { serviceFirst, last } = this.#options.uids;
    for (const stray of listProcessesOfUids(serviceFirst, last)) {
      if (adopted.has(stray.pid)) continue;
      this.#options.log.warn({ pid: stray.pid }, 'ending a VMM that no record names');
      await killAndWait(stray);
    }
    this.#options.network.sweepUnadopted();
  }

  async #adopt(id: string): Promise<number | undefined> {
    const directory = join(this.#options.vmsDirectory, id);
    const record = findVmRecord(directory);
    if (record === undefined) {
      rmSync(directory, { recursive: true, force: true });
      return undefined;
    }
    const driver = this.#newDriver(record.info, record.generation);
    const creation = new VmCreation(id, record.info, this.#options);
    creation.registerRelease(driver, record.slot);
    const vm = await this.#connect(record, directory);
    if (vm === undefined) {
      await this.#killLeftover(record);
      await driver.end('vmm_lost');
      return undefined;
    }
    driver.adopt(vm);
    this.#creates.set(id, Promise.resolve(record.info));
    this.#options.log.info({ vm: id, pid: vm.identity.pid }, 'VM adopted');
    return vm.identity.pid;
  }

  /** A VM whose create was cut off has no caller any more and is not kept. */
  async #connect(record: VmRecord, directory: string): ReturnType<CreationParts['vmm']['adopt']> {
    const { vmm, network, socketsDirectory, log } = this.#options;
    const usable =
      record.info.state === 'running' && record.process !== null && record.host_boot_id === hostBootId();
    if (!usable || record.process === null) return undefined;
    try {
      network.adopt(record.info.id, record.slot);
      return await vmm.adopt(record.process, join(socketsDirectory, record.info.id));
    } catch (error) {
      log.warn({ vm: record.info.id, directory, err: error }, 'VM cannot be adopted');
      return undefined;
    }
  }

  async #killLeftover(record: VmRecord): Promise<void> {
    for (const leftover of listProcessesOfUids(record.uid, record.uid)) await killAndWait(leftover);
  }

  /** Lets go of all VMs; they run on. */
  detachAll(): void {
    clearInterval(this.#sampler);
    for (const driver of this.#drivers.values()) driver.detach();
  }
}
