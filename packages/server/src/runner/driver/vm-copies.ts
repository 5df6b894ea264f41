/**
 * Makes copies of running VMs, and VMs that continue from them:
 *
 *   snapshot    capture, kept            ─► restore: another VM
 *   hibernate   capture, the VM is gone  ─► resume: a VM of the same id
 *   fork        temporary capture        ─► its children
 *
 * The id of its result identifies each operation: a repeated request joins a running one or returns the stored result.
 */
import { availableParallelism } from 'node:os';
import { AppError, isErrorCode } from '@coppice/contract';
import type { Logger } from 'pino';
import type { CapturedWorkspace, VmWorkspace } from '../../lib/protocol/disk-protocol.ts';
import { hostMoment } from '../../lib/host-clock.ts';
import {
  toBootMoment,
  type CaptureInfo,
  type ForkedVms,
  type ForkVm,
  type RestoreVm,
  type VmInfo,
  type VmShape,
} from '../../lib/protocol/runner-protocol.ts';
import { DeadlineError, withDeadline } from '../../lib/waiting/deadline.ts';
import { SingleFlight } from '../../lib/waiting/single-flight.ts';
import { Slots } from '../../lib/waiting/slots.ts';
import type { VmRecord } from '../vm/vm-record.ts';
import type { DiskGuard } from '../capacity/disk-guard.ts';
import { findAllocatedBytes } from '../host/allocated-bytes.ts';
import { explainFullDisk } from '../host/full-disk.ts';
import type { CaptureObjects } from '../capture-objects/capture-objects.ts';
import { filesOf, type CaptureFiles, type CaptureStore } from '../snapshot/capture-store.ts';
import { takeCapture, type CaptureJob, type TakenCapture } from '../snapshot/take-capture.ts';
import { MACHINE_VERSION } from '../vm/shape.ts';
import { blueprintOfCapture, describeBindings, toSources, type CaptureBindings } from './capture-bindings.ts';
import type { Fleet } from './fleet.ts';
import { enterStep } from '../vm/steps.ts';
import type { Blueprint } from './vm-assembly.ts';
import type { VmDriver } from './vm-driver.ts';
import { NO_RULES } from './vm-egress.ts';
import { forkMoment, keepMomentAnew } from '../workspace/disk-moments.ts';

const MIB = 1024 * 1024;
/** How long a capture waits for the object store. A guest that is being hibernated stands still meanwhile. */
const KEEP_TIMEOUT_MS = 60_000;
/** A start also waits for the disk and for timers: one more start than cores keeps the cores busy. */
const CHILDREN_AT_ONCE = availableParallelism() + 1;

type Child = ForkedVms['children'][number];

export interface VmCopiesOptions {
  fleet: Fleet;
  captures: CaptureStore;
  bindings: CaptureBindings;
  disk: DiskGuard;
  objects: Pick<CaptureObjects, 'use'>;
  /** The program that writes memory to files. */
  program: string;
  log: Logger;
}

export class VmCopies {
  readonly #options: VmCopiesOptions;
  readonly #captures = new SingleFlight<CaptureInfo>();
  readonly #forks = new SingleFlight<ForkedVms>();
  readonly #restores = new SingleFlight<VmInfo>();

  constructor(options: VmCopiesOptions) {
    this.#options = options;
  }

  snapshot(id: string, captureId: string): Promise<CaptureInfo> {
    return this.#captures.run(captureId, async () => {
      const { captures } = this.#options;
      const made = captures.find(captureId);
      if (made !== undefined) return made;
      const driver = this.#options.fleet.vms.getRunning(id);
      await using partial = captures.begin();
      const job = this.#jobFor(driver, partial.path, { isDurable: true });
      const taken = await takeCapture(job);
      using _ = taken.moment;
      return await this.#publish(captureId, driver, { job, taken });
    });
  }

  /** The VM's end is not reported, because its sandbox lives on in the capture. */
  hibernate(id: string, captureId: string): Promise<CaptureInfo> {
    return this.#captures.run(captureId, async () => {
      const { captures, fleet } = this.#options;
      if (captures.find(captureId) === undefined)
        await this.#takeHibernation(this.#options.fleet.vms.getRunning(id), captureId);
      await enterStep('hibernate.retire');
      await fleet.vms.find(id)?.retire();
      const made = captures.find(captureId);
      if (made === undefined)
        throw new AppError('not_found', `the hibernation ${captureId} was deleted meanwhile`);
      return made;
    });
  }

  async #takeHibernation(driver: VmDriver, captureId: string): Promise<void> {
    await using partial = this.#options.captures.begin();
    const job = this.#jobFor(driver, partial.path, { isDurable: true });
    const hold = async (taken: TakenCapture): Promise<void> => {
      driver.noteHibernation(captureId);
      try {
        await this.#publish(captureId, driver, { job, taken });
      } catch (error) {
        driver.dropHibernation();
        throw error;
      }
      // Immediately: if its process dies before it is ended, that would be reported as the sandbox's end.
      driver.disown();
    };
    await takeCapture({ ...job, hold });
  }

  /**
   * Forks a VM. A child that cannot be started has an error in its place. `disks` are the new persistent disks of the
   * children, in their order; required if the VM has one.
   */
  fork(id: string, { children, disks }: ForkVm): Promise<ForkedVms> {
    return this.#forks.run(children[0] ?? '', async () => {
      const { captures, fleet, log } = this.#options;
      const made = children.flatMap((child) => fleet.vms.find(child) ?? []);
      if (made.length === children.length && made.every(({ isUp }) => isUp))
        return { pause_ms: 0, children: made.map(({ info }) => ({ vm: info })) };
      // Children of an interrupted attempt are stopped and discarded, because all children must come from one moment.
      await Promise.all(made.map((driver) => driver.retire()));
      const driver = this.#options.fleet.vms.getRunning(id);
      const asked = askForCopyOf(fleet.vms.recordOf(driver));
      assertDisks(driver, children, disks);
      using holds = new DisposableStack();
      const refusals = new Map(children.flatMap((child) => this.#admit(child, asked, holds)));
      if (refusals.size === children.length)
        return { pause_ms: 0, children: children.map((child) => toChild(refusals.get(child))) };
      await using partial = captures.begin();
      const taken = await takeCapture(this.#jobFor(driver, partial.path, { isDurable: false }));
      using _ = taken.moment;
      log.info(
        { vm: id, children: children.length, pause_ms: round(taken.pauseMs), timings_ms: taken.timingsMs },
        'VM captured for a fork',
      );
      const workspaces = await forkDisks(driver, taken, disks);
      await enterStep('fork.children');
      const blueprint = this.#blueprintOfFork(driver, filesOf(partial.path));
      const slots = new Slots('children', { maxRunning: CHILDREN_AT_ONCE, maxWaiting: children.length });
      const start = async (child: string, index: number): Promise<Child> => {
        const refusal = refusals.get(child);
        if (refusal !== undefined) return toChild(refusal);
        const { signal } = new AbortController();
        return slots
          .run(signal, () =>
            fleet.goOn(child, blueprint, { egress: driver.egress, workspace: workspaces?.[index] }),
          )
          .then((vm) => ({ vm }), toChild);
      };
      return { pause_ms: taken.pauseMs, children: await Promise.all(children.map(start)) };
    });
  }

  /** Restores a capture. A capture holds no egress rules: the caller supplies them. */
  restore(
    id: string,
    { capture_id, organization, egress = NO_RULES, workspace }: RestoreVm,
  ): Promise<VmInfo> {
    return this.#restores.run(id, async () => {
      const { objects, fleet } = this.#options;
      const made = fleet.vms.find(id);
      if (made?.isUp === true) return made.info;
      return objects.use({ id: capture_id, organization }, async (files, manifest) => {
        await enterStep('restore.plan');
        assertWorkspace(manifest.info, workspace);
        const blueprint = blueprintOfCapture(this.#options.bindings, files, manifest);
        const left = workspace?.version === undefined ? manifest.info.workspace : undefined;
        return fleet.goOn(id, blueprint, { egress, workspace, left });
      });
    });
  }

  /** Ids of the VMs that are being restored, also while their captures are still being fetched. */
  get restoring(): string[] {
    return this.#restores.keys;
  }

  listCaptures(): CaptureInfo[] {
    return this.#options.captures.list();
  }

  /**
   * Returns the job of a capture. Throws `capacity` before the guest is stopped if the host has no room for the files;
   * a later failure would leave it stopped.
   */
  #jobFor(driver: VmDriver, target: string, { isDurable }: { isDurable: boolean }): CaptureJob {
    const { fleet, disk, program, log } = this.#options;
    const directory = fleet.vms.directoryOf(driver);
    const { memMiB } = fleet.vms.recordOf(driver).shape;
    const baseMiB = (findAllocatedBytes(directory.ram) ?? 0) / MIB;
    disk.assertRoom(Math.ceil(baseMiB + Math.min(memMiB, driver.usage.mem_peak_bytes / MIB)));
    return { driver, directory, memMiB, program, target, isDurable, log };
  }

  async #publish(
    captureId: string,
    driver: VmDriver,
    { job, taken }: { job: CaptureJob; taken: TakenCapture },
  ): Promise<CaptureInfo> {
    const { captures, fleet, bindings, log } = this.#options;
    const { image, shape, machine, slot } = fleet.vms.recordOf(driver);
    const files = await captures.seal(job.target);
    const workspace = await keepWorkspace(driver, taken, captureId);
    const overlayBytes = filesOf(job.target).overlays.map((path) => findAllocatedBytes(path) ?? 0);
    const now = hostMoment();
    const info: CaptureInfo = {
      id: captureId,
      kind: captureId.startsWith('snap') ? 'snapshot' : 'hibernation',
      vm_id: driver.info.id,
      image: image.reference,
      vcpus: shape.vcpus,
      mem_mib: shape.memMiB,
      disk_mib: shape.diskMiB,
      size_bytes: taken.memoryBytes + overlayBytes.reduce((sum, bytes) => sum + bytes, 0),
      created_at: new Date(now.wallMs).toISOString(),
      created_on_boot: toBootMoment(now),
      pause_ms: round(taken.pauseMs),
      bound_to: describeBindings({ machine, shape }, bindings),
      usage: driver.usage,
      ...(workspace !== undefined && { workspace }),
    };
    const memory = { sizeBytes: shape.memMiB * MIB, digest: taken.memoryDigest };
    await enterStep('capture.publish');
    await captures.publish(job.target, {
      version: 1,
      info,
      image,
      shape,
      machine,
      machine_version: MACHINE_VERSION,
      has_network: bindings.hasNetwork,
      tsc_khz: Math.round(bindings.tscKhz),
      slot,
      counters: driver.counters,
      files: { ram: memory, ...files },
    });
    const { vm_id: vm, pause_ms, size_bytes } = info;
    log.info({ vm, capture: captureId, pause_ms, size_bytes, timings_ms: taken.timingsMs }, 'VM captured');
    return info;
  }

  #blueprintOfFork(parent: VmDriver, files: CaptureFiles): Blueprint {
    const { image, shape, machine } = this.#options.fleet.vms.recordOf(parent);
    return { machine, image, shape, counters: parent.counters, files: toSources(files) };
  }

  /** Holds a reservation for a child. Returns the error if it is refused. */
  #admit(child: string, asked: VmShape, holds: DisposableStack): [string, AppError][] {
    try {
      holds.use(this.#options.fleet.admit(child, asked));
      return [];
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      return [[child, error]];
    }
  }
}

/** Keeps the persistent disk of the moment of a capture. The guest may stand still meanwhile. */
async function keepWorkspace(
  driver: VmDriver,
  { moment }: TakenCapture,
  captureId: string,
): Promise<CapturedWorkspace | undefined> {
  const { workspace } = driver.running;
  if (workspace === undefined || moment === undefined) return undefined;
  const late = new AbortController();
  const kept = keepMomentAnew(workspace, moment, { name: captureId, signal: late.signal });
  kept.catch(() => undefined);
  return withDeadline('writing the disk to the object store', KEEP_TIMEOUT_MS, kept, () =>
    late.abort(),
  ).catch((error: unknown) => {
    if (!(error instanceof DeadlineError)) throw error;
    const message =
      'the object store did not take what the sandbox wrote to its disk in time; try again later';
    throw new AppError('unavailable', message, { cause: error });
  });
}

/** Makes the children's disks from the disk of the moment of the fork. */
async function forkDisks(
  driver: VmDriver,
  { moment }: TakenCapture,
  disks: readonly string[] | undefined,
): Promise<VmWorkspace[] | undefined> {
  const { workspace } = driver.running;
  if (workspace === undefined || moment === undefined || disks === undefined) return undefined;
  const { organization, durability } = workspace.record;
  const versions = await forkMoment(workspace, moment, disks);
  return disks.map((disk, index) => ({ organization, disk, durability, version: versions[index] }));
}

function assertDisks(
  driver: VmDriver,
  children: readonly string[],
  disks: readonly string[] | undefined,
): void {
  const expected = driver.running.workspace === undefined ? undefined : children.length;
  if (disks?.length !== expected)
    throw new AppError(
      'invalid_request',
      'disks: must name one disk for each child, if the parent has a disk',
    );
}

/** A guest that has a disk mounted continues with it, or gets another one in its place. */
function assertWorkspace({ workspace: captured }: CaptureInfo, asked: VmWorkspace | undefined): void {
  if ((captured === undefined) === (asked === undefined)) return;
  const problem = captured === undefined ? 'has no disk' : 'has a disk, so its copy needs one';
  throw new AppError('invalid_request', `workspace: the saved sandbox ${problem}`);
}

/** Returns the shape of a copy, as a create would request it. */
function askForCopyOf({ shape }: VmRecord): VmShape {
  const { vcpus, memMiB: mem_mib, diskMiB: disk_mib } = shape;
  return { vcpus, mem_mib, disk_mib };
}

function toChild(error: unknown): Child {
  const told = explainFullDisk(error) ?? error;
  const code = told instanceof AppError && isErrorCode(told.code) ? told.code : 'internal';
  const message = told instanceof AppError ? told.message : 'the child could not be started';
  return { error: { code, message } };
}

function round(milliseconds: number): number {
  return Math.round(milliseconds * 1000) / 1000;
}
