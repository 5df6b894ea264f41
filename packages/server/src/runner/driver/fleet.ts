/** Creates and ends the VMs of this runner, and adopts those of an earlier one. */
import { randomBytes } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { CapturedWorkspace, VmWorkspace } from '../../lib/protocol/disk-protocol.ts';
import type { EgressCounters, VmEgress } from '../../lib/protocol/egress-protocol.ts';
import type {
  CreateVm,
  RollbackVm,
  VmEnd,
  VmInfo,
  VmRollback,
  VmShape,
} from '../../lib/protocol/runner-protocol.ts';
import { findSpan, traced } from '../../lib/tracing/tracing.ts';
import { DeadlineError } from '../../lib/waiting/deadline.ts';
import type { Capacity } from '../capacity/capacity.ts';
import type { Ballast } from '../capacity/ballast.ts';
import type { DiskGuard } from '../capacity/disk-guard.ts';
import type { CacheLease, CacheLeases } from '../cache/cache-leases.ts';
import { VmmStartError } from '../vm/vmm.ts';
import { adoptVms } from './adoption.ts';
import type { EventSpool } from './event-spool.ts';
import { StepTimer } from '../vm/step-timer.ts';
import { enterStep } from '../vm/steps.ts';
import type { TemplatePlan } from './template-plan.ts';
import {
  isGrown,
  VmAssembler,
  type AssembledVm,
  type AssemblyParts,
  type Blueprint,
  type TemplateBlueprint,
} from './vm-assembly.ts';
import type { VmDriver } from './vm-driver.ts';
import { PendingDisk } from '../workspace/pending-disk.ts';
import { NO_RULES, readEgressRecord } from './vm-egress.ts';
import { tellEnvironment } from './tell-environment.ts';
import { replaceVm } from './vm-replacement.ts';
import { VmRoster, type Held } from './vm-roster.ts';
import { WarmPool, type WarmPoolCounts } from './warm-pool.ts';

/** Name of the span of a start, and prefix of its steps. */
const START = 'vm.start';

export interface FleetOptions extends AssemblyParts {
  plan: TemplatePlan;
  leases: CacheLeases;
  spool: EventSpool;
  capacity: Capacity;
  disk: DiskGuard;
  ballast: Ballast;
  /** Most warm VMs in total; 0 keeps none. */
  warmPoolLimit: number;
  hasCapture: (id: string) => boolean;
  /** Called when nothing of a VM is left. */
  onVmGone: () => void;
  log: Logger;
}

function heldBy({ image, templateKey: template }: Blueprint): Held | undefined {
  return template === undefined ? undefined : { imageDigest: image.digest, template };
}

/** A requested VM. */
interface Start {
  id: string;
  blueprint: Blueprint;
  egress: VmEgress;
  timer: StepTimer;
  /** The persistent disk of the sandbox; absent without one. */
  disk?: PendingDisk | undefined;
  /** Waits for the template; the signal aborts when it is no longer needed. Absent for a VM restored from a capture. */
  ensureTemplate?: (signal: AbortSignal) => Promise<void>;
}

interface WantedDisk {
  asked: VmWorkspace | undefined;
  left?: CapturedWorkspace | undefined;
}

/** Rules and disk of a VM that continues from a capture. */
interface ContinuedWith {
  egress: VmEgress;
  workspace?: VmWorkspace | undefined;
  /** The disk that its guest has mounted and does not keep; absent if it continues with it, or has none. */
  left?: CapturedWorkspace | undefined;
}

function newInfo(id: string, { image, shape }: Blueprint, timer: StepTimer): VmInfo {
  const { vcpus, memMiB: mem_mib, diskMiB: disk_mib } = shape;
  const { timingsMs: timings_ms } = timer;
  return { id, state: 'creating', image: image.reference, vcpus, mem_mib, disk_mib, timings_ms };
}

/** Records the start of a sandbox's VM as a span, with its steps. */
function traceStart<T>(id: string, start: () => Promise<T>): Promise<T> {
  return traced(START, start, { attributes: { 'coppice.sandbox.id': id } });
}

/** Returns a name for a VM instance, which exists before it has a sandbox. No sandbox id has this form. */
function newUnit(): string {
  return `u${randomBytes(8).toString('hex')}`;
}

export class Fleet {
  readonly #options: FleetOptions;
  readonly vms: VmRoster;
  readonly #assembler: VmAssembler;
  readonly #pool: WarmPool;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.#assembler = new VmAssembler(options);
    this.#pool = new WarmPool({
      limit: options.warmPoolLimit,
      prepare: (blueprint) => this.#prepareWarm(blueprint),
      canPrepare: (blueprint) =>
        options.plan.isReady(blueprint) && options.capacity.hasRoomToSpare(blueprint.shape),
      now: () => performance.now(),
      log: options.log,
    });
    for (const parent of [options.vmsDirectory, options.socketsDirectory])
      mkdirSync(parent, { recursive: true, mode: 0o711 });
    this.vms = new VmRoster({
      ...options,
      directoryOf: (unit) => this.#assembler.directoryOf(unit),
      onGone: (unit) => {
        this.#pool.drop(unit);
        options.onVmGone();
      },
    });
  }

  /** Holds a reservation for a create until the result is disposed. Throws the error that refuses the create. */
  admit(id: string, shape: VmShape): Disposable {
    return this.#options.capacity.admit(id, shape, this.#pool.units);
  }

  get warmPool(): WarmPoolCounts {
    return this.#pool.counts;
  }

  /** Ends a warm VM. Returns false when there is none. */
  giveWay(): Promise<boolean> {
    return this.#pool.giveWay();
  }

  /** Creates a VM. Joins a running create of the same id, and repeats the answer of a completed one. */
  create(id: string, request: CreateVm): Promise<VmInfo> {
    return this.vms.join(id, () =>
      traceStart(id, () =>
        this.#withDisk({ vmId: id, asked: request.workspace }, (disk) => this.#create(id, request, disk)),
      ),
    );
  }

  /** Like {@link create}, for a VM that continues from a capture. */
  goOn(id: string, blueprint: Blueprint, { egress, workspace, left }: ContinuedWith): Promise<VmInfo> {
    const start = async (disk: PendingDisk | undefined): Promise<VmInfo> => {
      const timer = new StepTimer(START);
      this.#options.network.assertEgress(egress);
      return this.#startCold({ id, blueprint, egress, timer, disk });
    };
    return this.vms.join(id, () =>
      traceStart(id, () => this.#withDisk({ vmId: id, asked: workspace, left }, start)),
    );
  }

  /** Takes the disk while `work` prepares the VM, and gives it up if no VM gets it. */
  async #withDisk(
    { vmId, asked, left }: { vmId: string } & WantedDisk,
    work: (disk: PendingDisk | undefined) => Promise<VmInfo>,
  ): Promise<VmInfo> {
    if (asked === undefined) return work(undefined);
    const disk = new PendingDisk(this.#options.workspaces, { asked, vmId, left });
    try {
      return await work(disk);
    } catch (error) {
      await disk.abandon().catch((cause: unknown) => {
        this.#options.log.error({ err: cause, vm: vmId }, 'a disk that no VM got is not released');
      });
      throw error;
    }
  }

  async #create(id: string, request: CreateVm, disk: PendingDisk | undefined): Promise<VmInfo> {
    const timer = new StepTimer(START);
    const { egress = NO_RULES, organization } = request;
    this.#options.network.assertEgress(egress);
    // Holds image and template until the VM holds them itself.
    using lease = this.#options.leases.open();
    await enterStep('create.plan');
    const blueprint = await this.#plan(request, { timer, lease });
    const { plan } = this.#options;
    const ensureTemplate = (signal: AbortSignal): Promise<void> => {
      const ensure = () => plan.ensureTemplate(blueprint, { organization, signal });
      return plan.isReady(blueprint) ? ensure() : this.#pool.waitWith(ensure);
    };
    const start = { id, blueprint, egress, timer, disk, ensureTemplate };
    return await this.#pool.serve(blueprint, (warm) => {
      findSpan()?.set({ 'coppice.vm.warm': warm !== undefined });
      return warm === undefined ? this.#startCold(start) : this.#startWarm(start, warm);
    });
  }

  /** Runs before any part of the VM is created: a bad reference or a missing image leaves nothing to undo. */
  async #plan(request: CreateVm, how: { timer: StepTimer; lease: CacheLease }): Promise<TemplateBlueprint> {
    const { timer, lease } = how;
    const { plan } = this.#options;
    const image = await plan.prepareImage(request, { lease });
    timer.end('image');
    return plan.blueprintOf(image, request, lease);
  }

  /** Gives the sandbox a warm VM. If that VM has died in the pool unnoticed, a new VM replaces it. */
  async #startWarm(start: Start, warm: AssembledVm): Promise<VmInfo> {
    const { driver } = warm;
    const { blueprint, timer } = start;
    const bringUp = async (): Promise<void> => {
      await this.#assembler.wake({ ...warm, blueprint }, { timer, disk: start.disk });
      this.#options.capacity.dropHold(start.id);
    };
    try {
      return await this.#claim(driver, start, { isWarm: true, bringUp });
    } catch (error) {
      const isReplaceable = (await this.#isLost(driver, error)) && driver.info.state === 'creating';
      // A destroy finds the new VM from here on.
      if (!isReplaceable || driver.isDestroyed) throw await this.#giveUp(driver, start, error);
      this.#options.log.warn(
        { err: error, vm: start.id, unit: driver.unit },
        'a warm VM has died; starting another',
      );
      return this.#startCold(start, () => this.#endLost(driver));
    }
  }

  /** Starts a new VM. `before` runs first, but after the sandbox's id leads to the new VM. */
  async #startCold(start: Start, before?: () => Promise<void>): Promise<VmInfo> {
    const { blueprint, id, timer } = start;
    const driver = this.#newDriver(newUnit(), newInfo(id, blueprint, timer), blueprint);
    const bringUp = async (): Promise<void> => {
      await before?.();
      await this.#bringUp(driver, start);
    };
    try {
      return await this.#claim(driver, start, { isWarm: false, bringUp });
    } catch (error) {
      throw await this.#giveUp(driver, start, error);
    }
  }

  async #claim(
    driver: VmDriver,
    start: Start,
    { isWarm, bringUp }: { isWarm: boolean; bringUp: () => Promise<void> },
  ): Promise<VmInfo> {
    const { id, blueprint, egress, timer } = start;
    const info = newInfo(id, blueprint, timer);
    driver.claim(info, egress);
    this.vms.enter(driver);
    const work = bringUp();
    driver.trackCreation(work);
    await work;
    await enterStep('create.answer');
    this.#options.log.info(
      { vm: id, unit: driver.unit, warm: isWarm, timings_ms: timer.timingsMs },
      'VM created',
    );
    return info;
  }

  async #bringUp(driver: VmDriver, { id, blueprint, timer, disk, ensureTemplate }: Start): Promise<void> {
    const { capacity } = this.#options;
    const giveWay = (): Promise<boolean> => this.giveWay();
    await capacity.reserve(driver.unit, blueprint.shape, { heldAs: id, giveWay });
    timer.end('admission');
    // This reservation also covers the template's own VM, which ends before this VM starts.
    await ensureTemplate?.(driver.endAsked);
    timer.end('template');
    const assembled = await capacity.inTurn({ diskMiB: 0, signal: driver.endAsked }, async () => {
      timer.end('turn');
      const ready = await this.#assembler.assemble(driver, blueprint, { timer, disk });
      if (!isGrown(blueprint)) await this.#assembler.wake(ready, { timer, disk });
      return ready;
    });
    // Growing to a large disk takes many seconds of the guest's own CPU time, so it does not occupy a start slot.
    if (isGrown(blueprint)) await this.#assembler.wake(assembled, { timer, disk });
  }

  /** Ends a VM that failed to start. Returns the error for its create. */
  async #giveUp(driver: VmDriver, { id, timer }: Start, error: unknown): Promise<unknown> {
    const isLost = await this.#isLost(driver, error);
    const { reason } = await driver.end('vmm_lost');
    if (!isLost || reason === 'destroyed') return error;
    const { timingsMs } = timer;
    const { log } = this.#options;
    log.warn({ err: error, vm: id, unit: driver.unit, timings_ms: timingsMs }, 'a VM did not start');
    return lostMeanwhile(error);
  }

  async #isLost(driver: VmDriver, error: unknown): Promise<boolean> {
    return driver.isLost || (await isLoss(error, [driver]));
  }

  /** Ends a dead VM. A failure is only logged: the driver retries it. */
  async #endLost(driver: VmDriver): Promise<void> {
    try {
      await driver.end('vmm_lost');
    } catch (error) {
      this.#options.log.warn({ err: error, unit: driver.unit }, 'a dead warm VM is not ended yet');
    }
  }

  /** Starts a VM for the pool; it has no sandbox id yet. */
  async #prepareWarm(blueprint: TemplateBlueprint): Promise<AssembledVm> {
    const unit = newUnit();
    const driver = this.#newDriver(unit, newInfo(unit, blueprint, new StepTimer(START)), blueprint);
    const { capacity } = this.#options;
    try {
      await capacity.reserve(unit, blueprint.shape);
      const assembled = await capacity.inTurn({ diskMiB: 0 }, () =>
        this.#assembler.assemble(driver, blueprint, { timer: new StepTimer(START) }),
      );
      await this.#assembler.rehearse(assembled);
      this.#options.log.info({ unit, template: blueprint.templateKey }, 'VM kept warm');
      return assembled;
    } catch (error) {
      await driver.end('vmm_lost');
      throw error;
    }
  }

  /** Opens a driver without rules; a claim sets them. */
  #newDriver(unit: string, info: VmInfo, blueprint: Blueprint): VmDriver {
    return this.vms.open(unit, {
      info,
      egress: NO_RULES,
      counters: blueprint.counters,
      held: heldBy(blueprint),
      cgroups: this.#options.cgroups.directoriesOf(unit),
    });
  }

  /** Changes what the sandbox may send. Resolves when the change is in force, also for open connections. */
  async setEgress(id: string, egress: VmEgress): Promise<void> {
    const driver = this.vms.get(id);
    this.#options.network.assertEgress(egress);
    const { unit } = driver;
    const { log, network } = this.#options;
    const image = this.vms.recordOf(driver).image.config.env;
    await driver.changeEgress(egress, async (former) => {
      await network.setEgress(unit, { vmId: id, egress });
      await tellEnvironment(driver, { former, image, log });
    });
  }

  readEgress(id: string): Promise<EgressCounters> {
    return this.#options.network.readEgress(this.vms.get(id).unit);
  }

  /** Ends a VM. Repeats the answer until control has acknowledged the end; after that throws `not_found`. */
  async destroy(id: string): Promise<VmEnd> {
    const driver = this.vms.find(id);
    if (driver !== undefined) {
      const ended = await driver.end('destroyed');
      await enterStep('end.answer');
      return ended;
    }
    const end = this.#options.spool.findEnd(id);
    if (end === undefined) throw new AppError('not_found', `there is no VM ${id}`);
    return end;
  }

  /** Replaces a VM for a rollback (vm-replacement.ts). If it fails the old VM continues. */
  async replace(old: VmDriver, blueprint: Blueprint, asked: RollbackVm): Promise<VmRollback> {
    const timer = new StepTimer(START);
    const driver = this.#newDriver(newUnit(), newInfo(old.info.id, blueprint, timer), blueprint);
    driver.claim(driver.info, old.egress);
    // If the sandbox ends there is nothing to take over.
    const giveUp = (): void => this.#retireLater(driver);
    old.endAsked.addEventListener('abort', giveUp, { once: true });
    try {
      const parts = {
        ...this.#options,
        assembler: this.#assembler,
        vms: this.vms,
        giveWay: () => this.#pool.giveWay(),
      };
      const work = replaceVm(parts, { old, driver, blueprint, asked, timer });
      driver.trackCreation(work);
      const rollback = await work.finally(() => old.endAsked.removeEventListener('abort', giveUp));
      // The rollback is done, even if the rest of the old VM cannot be ended yet.
      await old.retire().catch((error: unknown) => this.#noteUnended(old, error));
      return rollback;
    } catch (error) {
      const isLost = driver.isLost || (await isLoss(error, [driver, old]));
      await driver.retire();
      throw isLost && !old.isDestroyed ? lostMeanwhile(error) : error;
    }
  }

  #retireLater(driver: VmDriver): void {
    driver.retire().catch((error: unknown) => this.#noteUnended(driver, error));
  }

  /** The driver retries the end. */
  #noteUnended({ unit }: VmDriver, error: unknown): void {
    this.#options.log.warn({ err: error, unit }, 'a VM that no sandbox needs is not ended yet');
  }

  /** Removes an evicted template from the pool. */
  forgetTemplate(key: string): void {
    this.#pool.forget(key);
  }

  /** Adopts the VMs of an earlier runner process. */
  adoptAll(): Promise<void> {
    const options = this.#options;
    return adoptVms({
      ...options,
      assembler: this.#assembler,
      openDriver: (unit, record) => {
        const { info, image, template, cgroups } = record;
        const held = template === null ? undefined : { imageDigest: image.digest, template };
        const counters = { session: record.generation, resume: record.resume };
        const egress = readEgressRecord(record.egress);
        const driver = this.vms.open(unit, { info, egress, counters, held, cgroups });
        // A VM that never ran has no caller any more. Its sandbox may have another VM, if it was made for a rollback.
        if (info.state === 'running' && !record.retired) this.vms.enter(driver);
        return driver;
      },
      onAdopted: (unit, { info, shape }) => {
        options.capacity.adopt(unit, shape);
        this.vms.markCreated(info);
      },
      listUnits: () => this.vms.units,
    });
  }

  /** Releases the sandboxes, which keep running, and ends the warm VMs. */
  async close(): Promise<void> {
    this.vms.stopWatching();
    await this.#pool.close();
    this.vms.detachAll();
  }
}

/** Whether the cause is a lost VM. A timeout on a busy host also counts: a retry may succeed. */
async function isLoss(cause: unknown, drivers: readonly VmDriver[]): Promise<boolean> {
  if (cause instanceof VmmStartError || cause instanceof DeadlineError) return true;
  if (cause instanceof AppError) return false;
  const gone = await Promise.all(drivers.map((driver) => driver.hasGone()));
  return gone.includes(true);
}

function lostMeanwhile(cause: unknown): AppError {
  const what = cause instanceof DeadlineError ? 'did not answer in time' : 'ended';
  const message = `the virtual machine ${what} while it was being created; try again`;
  return new AppError('guest_unreachable', message, { cause });
}
