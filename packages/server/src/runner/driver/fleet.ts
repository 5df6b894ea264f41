/** All VMs of this runner: creates, finds, ends and adopts them. */
import { randomBytes } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { AppError, parseImageReference } from '@coppice/contract';
import type { Logger } from 'pino';
import type { Accelerator, CreateVm, VmEnd, VmInfo, VmUsage } from '../../lib/runner-protocol.ts';
import { untilAborted } from '../../lib/deadline.ts';
import { findVmRecord, writeVmRecord, type VmRecord } from '../adopt/vm-record.ts';
import type { Capacity } from '../capacity/capacity.ts';
import type { DiskGuard } from '../capacity/disk-guard.ts';
import { DiskWatch, type WatchedVm } from '../capacity/disk-watch.ts';
import { findAllocatedBytes } from '../disk/allocated-bytes.ts';
import type { VmDirectory } from '../disk/vm-directory.ts';
import { readGroupUsage } from '../confinement/cgroup-usage.ts';
import { imageKey, templateKey, type CacheLease, type CacheLeases } from '../cache/cache-leases.ts';
import type { ImageStore } from '../image/image-store.ts';
import type { TemplateStore } from '../snapshot/template-store.ts';
import { VmmStartError } from '../vmm/qemu.ts';
import { adoptVms } from './adoption.ts';
import type { EventSpool } from './event-spool.ts';
import { StepTimer } from './step-timer.ts';
import { enterStep } from './steps.ts';
import {
  VmAssembler,
  type AssembledVm,
  type AssemblyParts,
  type Blueprint,
  type TemplateBlueprint,
} from './vm-assembly.ts';
import { TEMPLATE_COUNTERS, VmDriver, type AgentCounters, type DriverHooks } from './vm-driver.ts';
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
  hasCapture: (id: string) => boolean;
  log: Logger;
}

/** What of the cache a VM was made from: none of it for one that goes on from a capture, which has files of its own. */
interface Held {
  imageDigest: string;
  template: string;
}

function heldBy({ image, templateKey: template }: Blueprint): Held | undefined {
  return template === undefined ? undefined : { imageDigest: image.digest, template };
}

interface DriverOrigin {
  info: VmInfo;
  counters: AgentCounters;
  held: Held | undefined;
  cgroups: readonly string[];
}

function isOfTemplate(blueprint: Blueprint): blueprint is TemplateBlueprint {
  return blueprint.templateKey !== undefined;
}

function newInfo(id: string, { image, shape }: Blueprint, timer: StepTimer): VmInfo {
  const { vcpus, memMiB: mem_mib, diskMiB: disk_mib } = shape;
  const { timingsMs: timings_ms } = timer;
  return { id, state: 'creating', image: image.reference, vcpus, mem_mib, disk_mib, timings_ms };
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
    const directory = this.#assembler.directoryOf(driver.unit);
    const topOf = (): number => driver.running.chain.numbers.at(-1) ?? 0;
    return {
      unit: driver.unit,
      isPaused: driver.isPaused,
      diskBytes: () => findAllocatedBytes(directory.overlay(topOf())),
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
    return this.#join(id, () => this.#create(id, request));
  }

  /** As {@link create}, for a VM that goes on from a capture. */
  goOn(id: string, blueprint: Blueprint): Promise<VmInfo> {
    const timer = new StepTimer();
    return this.#join(id, () =>
      this.#claim(newInfo(id, blueprint, timer), blueprint, { warm: undefined, timer }),
    );
  }

  #join(id: string, create: () => Promise<VmInfo>): Promise<VmInfo> {
    const joined = this.#creates.get(id);
    if (joined !== undefined) return joined;
    if (this.#options.spool.findEnd(id) !== undefined) {
      return Promise.reject(new AppError('invalid_state', `the VM ${id} has ended`));
    }
    const created = create();
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
    const info = newInfo(id, blueprint, timer);
    return await this.#pool.serve(blueprint, (warm) => this.#claim(info, blueprint, { warm, timer }));
  }

  /** Before anything of the VM is made: a bad reference or an absent image leaves nothing to undo. */
  async #plan(request: CreateVm, how: { timer: StepTimer; lease: CacheLease }): Promise<TemplateBlueprint> {
    const { timer, lease } = how;
    const { images, templates, accelerator } = this.#options;
    const reference = parseImageReference(request.image);
    const image = await images.prepare(reference, { access: request.access ?? {}, lease });
    timer.end('image');
    const { vcpus, mem_mib: memMiB, disk_mib: diskMiB } = request;
    const shape = { accelerator, vcpus, memMiB, diskMiB };
    const key = templates.keyOf(image, shape);
    lease.add(templateKey(key));
    const { reference: resolved, digest, config } = image;
    const { scratchPath: topPath, ...saved } = templates.filesOf(key);
    return {
      machine: templates.machine,
      image: { reference: resolved, digest, config: { ...config, env: { ...config.env } } },
      shape,
      templateKey: key,
      stored: image,
      files: { ...saved, imagePath: image.path, scratch: { frozen: [], topPath } },
      counters: TEMPLATE_COUNTERS,
    };
  }

  async #claim(
    info: VmInfo,
    blueprint: Blueprint,
    how: { warm: AssembledVm | undefined; timer: StepTimer },
  ): Promise<VmInfo> {
    const { warm, timer } = how;
    const driver = warm?.driver ?? this.#newDriver(newUnit(), info, blueprint);
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
    const { shape } = blueprint;
    await capacity.reserve(driver.unit, shape, { heldAs: id, giveWay: () => this.#pool.giveWay() });
    timer.end('admission');
    // The template's own VM is covered by this promise: it ends before this one is made.
    if (isOfTemplate(blueprint))
      await untilAborted(driver.endAsked, templates.ensure(blueprint.stored, shape));
    timer.end('template');
    await capacity.inTurn({ diskMiB: 0, signal: driver.endAsked }, async () => {
      timer.end('turn');
      await this.#assembler.wake(await this.#assembler.assemble(driver, blueprint, timer), timer);
    });
  }

  /** A VM for the pool; it has no sandbox's id yet. */
  async #prepareWarm(blueprint: TemplateBlueprint): Promise<AssembledVm> {
    const unit = newUnit();
    const driver = this.#newDriver(unit, newInfo(unit, blueprint, new StepTimer()), blueprint);
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

  #newDriver(unit: string, info: VmInfo, { counters, ...blueprint }: Blueprint): VmDriver {
    const held = heldBy({ counters, ...blueprint });
    return this.#openDriver(unit, {
      info,
      counters,
      held,
      cgroups: this.#options.cgroups.directoriesOf(unit),
    });
  }

  #openDriver(unit: string, { info, counters, held, cgroups }: DriverOrigin): VmDriver {
    const { spool } = this.#options;
    const { path } = this.#assembler.directoryOf(unit);
    const log = this.#options.log.child({ unit });
    const hooks: DriverHooks = {
      note: (change) => {
        if (change.end !== undefined && driver.info.state !== 'running') return;
        const record = findVmRecord(path);
        if (record !== undefined) writeVmRecord(path, { ...record, ...change });
      },
      groupUsage: () => readGroupUsage(cgroups),
      // A create that failed is answered to its caller; only a VM that ran has an end to report.
      recordEnd: (end) => {
        if (driver.info.state === 'running' && spool.findEnd(end.id) === undefined) spool.add(end);
        log.info({ vm: end.id, reason: end.reason, cpu_ms: end.cpu_ms }, 'VM ended');
      },
    };
    const driver = new VmDriver(unit, { info, counters, hooks, log });
    if (held !== undefined) driver.onRelease(this.#holdCache(held));
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

  /**
   * A VM that goes on from other state in the place of one that runs, under the same id. That one stands still from when
   * the new one is ready until it has taken over; if that fails it goes on.
   */
  async replace(old: VmDriver, blueprint: Blueprint): Promise<{ info: VmInfo; usage: VmUsage }> {
    const timer = new StepTimer();
    const { capacity } = this.#options;
    const { id } = old.info;
    const driver = this.#newDriver(newUnit(), newInfo(id, blueprint, timer), blueprint);
    try {
      await capacity.reserve(driver.unit, blueprint.shape, { giveWay: () => this.#pool.giveWay() });
      const assembled = await capacity.inTurn({ diskMiB: 0 }, () =>
        this.#assembler.assemble(driver, blueprint, timer),
      );
      assembled.record.replaces = old.unit;
      await old.capture(() => this.#takeOver(old, assembled, timer));
      return { info: driver.info, usage: await old.retire() };
    } catch (error) {
      if (this.#drivers.get(id) === driver) throw error;
      const isLost = driver.isLost || !old.isAlive || error instanceof VmmStartError;
      await driver.end('vmm_lost');
      throw isLost && !(error instanceof AppError) ? lostMeanwhile(error) : error;
    }
  }

  async #takeOver(old: VmDriver, assembled: AssembledVm, timer: StepTimer): Promise<void> {
    const { driver } = assembled;
    const { vm } = old.running;
    await vm.stop();
    try {
      await enterStep('rollback.replace');
      await this.#assembler.wake(assembled, timer);
    } catch (error) {
      await vm.start();
      throw error;
    }
    this.#drivers.set(driver.info.id, driver);
    this.#creates.set(driver.info.id, Promise.resolve(driver.info));
  }

  directoryOf({ unit }: VmDriver): VmDirectory {
    return this.#assembler.directoryOf(unit);
  }

  /** Of the machines that VMs run on; one that is being ended has none when its directory is gone. */
  get machineKeys(): string[] {
    const records = [...this.#drivers.values()].map((driver) => findVmRecord(this.directoryOf(driver).path));
    return records.flatMap((record) => record?.machine ?? []);
  }

  /** What is known of a VM that runs. */
  recordOf(driver: VmDriver): VmRecord {
    const record = findVmRecord(this.directoryOf(driver).path);
    if (record === undefined) throw new AppError('invalid_state', `the VM is ${driver.state}`);
    return record;
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
        const { info, image, template, cgroups } = record;
        const held = template === null ? undefined : { imageDigest: image.digest, template };
        const counters = { session: record.generation, resume: record.resume };
        const driver = this.#openDriver(unit, { info, counters, held, cgroups });
        // One that never came to run has no caller any more, and its sandbox may have another: it was to be rolled back.
        if (info.state === 'running' && !record.retired) this.#drivers.set(info.id, driver);
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
