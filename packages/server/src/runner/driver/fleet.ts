/** All VMs of this runner: creates, finds, ends and adopts them. */
import { randomBytes } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { AppError, parseImageReference } from '@coppice/contract';
import type { Logger } from 'pino';
import type { Accelerator, CreateVm, VmEnd, VmInfo } from '../../lib/runner-protocol.ts';
import { untilAborted } from '../../lib/deadline.ts';
import { findVmRecord, writeVmRecord } from '../adopt/vm-record.ts';
import type { Capacity } from '../capacity/capacity.ts';
import type { DiskGuard } from '../capacity/disk-guard.ts';
import { DiskWatch, type WatchedVm } from '../capacity/disk-watch.ts';
import { findAllocatedBytes } from '../disk/allocated-bytes.ts';
import { readGroupUsage } from '../confinement/cgroup-usage.ts';
import { imageKey, templateKey, type CacheLease, type CacheLeases } from '../cache/cache-leases.ts';
import type { ImageStore } from '../image/image-store.ts';
import type { TemplateStore } from '../snapshot/template-store.ts';
import { VmmStartError } from '../vmm/qemu.ts';
import { adoptVms } from './adoption.ts';
import type { EventSpool } from './event-spool.ts';
import { StepTimer } from './step-timer.ts';
import { enterStep } from './steps.ts';
import { VmAssembler, type AssembledVm, type AssemblyParts, type Blueprint } from './vm-assembly.ts';
import { VmDriver, type DriverHooks } from './vm-driver.ts';
import { WarmPool } from './warm-pool.ts';

const SAMPLE_INTERVAL_MS = 15_000;

export interface FleetOptions extends AssemblyParts {
  accelerator: Accelerator;
  images: ImageStore;
  templates: TemplateStore;
  leases: CacheLeases;
  spool: EventSpool;
  capacity: Capacity;
  disk: DiskGuard;
  /** VMs kept warm in all; 0 keeps none. */
  warmPoolLimit: number;
  log: Logger;
}

/** What of the cache a VM depends on. */
interface Held {
  imageDigest: string;
  template: string;
}

function heldBy({ image, templateKey: template }: Blueprint): Held {
  return { imageDigest: image.digest, template };
}

/** Names a VM before it is a sandbox's; no sandbox's id looks like it. */
function newUnit(): string {
  return `u${randomBytes(8).toString('hex')}`;
}

export class Fleet {
  readonly #options: FleetOptions;
  readonly #drivers = new Map<string, VmDriver>();
  readonly #creates = new Map<string, Promise<VmInfo>>();
  readonly #assembler: VmAssembler;
  readonly #pool: WarmPool;
  readonly #sampler: NodeJS.Timeout;
  readonly #diskWatch: DiskWatch;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.#assembler = new VmAssembler(options);
    this.#pool = new WarmPool({
      limit: options.warmPoolLimit,
      prepare: (blueprint) => this.#prepareWarm(blueprint),
      hasRoom: ({ shape }) => options.capacity.hasRoomToSpare(shape),
      now: () => performance.now(),
      log: options.log,
    });
    for (const parent of [options.vmsDirectory, options.socketsDirectory])
      mkdirSync(parent, { recursive: true, mode: 0o711 });
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

  list(): VmInfo[] {
    return [...this.#drivers.values()].map((driver) => driver.info);
  }

  get pausedCount(): number {
    return [...this.#drivers.values()].filter((driver) => driver.isPaused).length;
  }

  #watched(driver: VmDriver): WatchedVm {
    const path = this.#assembler.scratchPathOf(driver.unit);
    return {
      unit: driver.unit,
      isPaused: driver.isPaused,
      diskBytes: () => findAllocatedBytes(path),
      pause: () => driver.pause(),
      continue: () => driver.continue(),
    };
  }

  find(id: string): VmDriver | undefined {
    return this.#drivers.get(id);
  }

  /** Holds a place for a create that is about to come, or throws what it is refused with. */
  admit(id: string, request: CreateVm): void {
    this.#options.capacity.admit(id, request, this.#pool.units);
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
    const timer = new StepTimer();
    // From here until the VM holds them itself.
    using lease = this.#options.leases.open();
    await enterStep('create.plan');
    const blueprint = await this.#plan(request, { timer, lease });
    const { vcpus, mem_mib, disk_mib } = request;
    const image = blueprint.image.reference;
    const info: VmInfo = {
      id,
      state: 'creating',
      image,
      vcpus,
      mem_mib,
      disk_mib,
      timings_ms: timer.timingsMs,
    };
    return await this.#pool.serve(blueprint, (warm) => this.#claim(info, blueprint, { warm, timer }));
  }

  /** Before anything of the VM is made: a bad reference or an absent image leaves nothing to undo. */
  async #plan(request: CreateVm, how: { timer: StepTimer; lease: CacheLease }): Promise<Blueprint> {
    const { timer, lease } = how;
    const { images, templates, accelerator } = this.#options;
    const reference = parseImageReference(request.image);
    const image = await images.prepare(reference, { access: request.access ?? {}, lease });
    timer.end('image');
    const { vcpus, mem_mib: memMiB, disk_mib: diskMiB } = request;
    const shape = { accelerator, vcpus, memMiB, diskMiB };
    const key = templates.keyOf(image, shape);
    lease.add(templateKey(key));
    return { machine: templates.machine, image, shape, templateKey: key, files: templates.filesOf(key) };
  }

  async #claim(
    info: VmInfo,
    blueprint: Blueprint,
    how: { warm: AssembledVm | undefined; timer: StepTimer },
  ): Promise<VmInfo> {
    const { warm, timer } = how;
    const driver = warm?.driver ?? this.#newDriver(newUnit(), info, heldBy(blueprint));
    driver.claim(info);
    this.#drivers.set(info.id, driver);
    const work = this.#bringUp(driver, blueprint, how);
    driver.trackCreation(work);
    try {
      await work;
      await enterStep('create.answer');
      this.#options.log.info(
        { vm: info.id, unit: driver.unit, warm: warm !== undefined, timings_ms: timer.timingsMs },
        'VM created',
      );
      return info;
    } catch (error) {
      const isLost = driver.isLost || error instanceof VmmStartError;
      const { reason } = await driver.end('vmm_lost');
      throw isLost && reason !== 'destroyed' ? lostMeanwhile(error) : error;
    }
  }

  async #bringUp(
    driver: VmDriver,
    blueprint: Blueprint,
    how: { warm: AssembledVm | undefined; timer: StepTimer },
  ): Promise<void> {
    const { warm, timer } = how;
    const { capacity, templates } = this.#options;
    const { id } = driver.info;
    if (warm !== undefined) {
      capacity.release(id);
      return this.#assembler.wake(warm, timer);
    }
    const { image, shape } = blueprint;
    await capacity.reserve(driver.unit, shape, { heldAs: id, giveWay: () => this.#pool.giveWay() });
    timer.end('admission');
    // The template's own VM is covered by this promise: it ends before this one is made.
    await untilAborted(driver.endAsked, templates.ensure(image, shape));
    timer.end('template');
    await capacity.inTurn({ diskMiB: 0, signal: driver.endAsked }, async () => {
      timer.end('turn');
      await this.#assembler.wake(await this.#assembler.assemble(driver, blueprint, timer), timer);
    });
  }

  /** A VM for the pool; it has no sandbox's id yet. */
  async #prepareWarm(blueprint: Blueprint): Promise<AssembledVm> {
    const unit = newUnit();
    const { vcpus, memMiB, diskMiB } = blueprint.shape;
    const image = blueprint.image.reference;
    const info: VmInfo = {
      id: unit,
      state: 'creating',
      image,
      vcpus,
      mem_mib: memMiB,
      disk_mib: diskMiB,
      timings_ms: {},
    };
    const driver = this.#newDriver(unit, info, heldBy(blueprint));
    const { capacity } = this.#options;
    try {
      await capacity.reserve(unit, blueprint.shape);
      const assembled = await capacity.inTurn({ diskMiB: 0 }, () =>
        this.#assembler.assemble(driver, blueprint, new StepTimer()),
      );
      await this.#assembler.rehearse(assembled);
      this.#options.log.info({ unit, template: blueprint.templateKey }, 'VM kept warm');
      return assembled;
    } catch (error) {
      await driver.end('vmm_lost');
      throw error;
    }
  }

  #newDriver(
    unit: string,
    info: VmInfo,
    held: Held,
    cgroups = this.#options.cgroups.directoriesOf(unit),
  ): VmDriver {
    const { spool } = this.#options;
    const directory = this.#assembler.directoryOf(unit);
    const log = this.#options.log.child({ unit });
    const hooks: DriverHooks = {
      saveGeneration: (next) => {
        const record = findVmRecord(directory);
        if (record !== undefined) writeVmRecord(directory, { ...record, generation: next });
      },
      groupUsage: () => readGroupUsage(cgroups),
      noteEnd: (end) => {
        if (driver.info.state !== 'running') return;
        const record = findVmRecord(directory);
        if (record !== undefined) writeVmRecord(directory, { ...record, end });
      },
      // A create that failed is answered to its caller; only a VM that ran has an end to report.
      recordEnd: (end) => {
        if (driver.info.state === 'running' && spool.findEnd(end.id) === undefined) spool.add(end);
        log.info({ vm: end.id, reason: end.reason, cpu_ms: end.cpu_ms }, 'VM ended');
      },
    };
    const driver = new VmDriver(unit, info, hooks, log);
    driver.onRelease(this.#holdCache(held));
    // Early in the list, so late to be done: when nothing of the VM is left.
    driver.onRelease(() => {
      this.#options.capacity.release(unit);
      // An end that took long must not take away what a later create made under the same id.
      if (this.#drivers.get(driver.info.id) === driver) {
        this.#drivers.delete(driver.info.id);
        this.#creates.delete(driver.info.id);
      }
      this.#pool.drop(unit);
    });
    return driver;
  }

  /** Ends a VM. Answers again until control has acknowledged the end, then 404. */
  async destroy(id: string): Promise<VmEnd> {
    const driver = this.#drivers.get(id);
    if (driver !== undefined) {
      const ended = await driver.end('destroyed');
      await enterStep('end.answer');
      return ended;
    }
    const end = this.#options.spool.findEnd(id);
    if (end === undefined) throw new AppError('not_found', `there is no VM ${id}`);
    return end;
  }

  /** Of a template that is no more. */
  forgetTemplate(key: string): void {
    this.#pool.forget(key);
  }

  /** Returns what lets go: the last that is released, as a VM's files lead to them. */
  #holdCache({ imageDigest, template }: Held): () => void {
    const lease = this.#options.leases.open();
    lease.add(imageKey(imageDigest));
    lease.add(templateKey(template));
    return () => lease.release();
  }

  /** Takes over what an earlier runner process left. */
  adoptAll(): Promise<void> {
    const options = this.#options;
    return adoptVms({
      ...options,
      assembler: this.#assembler,
      openDriver: (unit, record) => {
        const held = { imageDigest: record.image_digest, template: record.template };
        const driver = this.#newDriver(unit, record.info, held, record.cgroups);
        this.#drivers.set(record.info.id, driver);
        return driver;
      },
      onAdopted: (unit, { info }) => {
        options.capacity.adopt(unit, { vcpus: info.vcpus, memMiB: info.mem_mib });
        this.#creates.set(info.id, Promise.resolve(info));
      },
      listUnits: () => [...this.#drivers.values()].map((driver) => driver.unit),
    });
  }

  /** Lets go of the sandboxes, which run on, and ends the VMs that are nobody's. */
  async close(): Promise<void> {
    clearInterval(this.#sampler);
    this.#diskWatch.close();
    await this.#pool.close();
    for (const driver of this.#drivers.values()) driver.detach();
  }
}

function lostMeanwhile(cause: unknown): AppError {
  return new AppError(
    'guest_unreachable',
    'the virtual machine ended while it was being created; try again',
    {
      cause,
    },
  );
}
