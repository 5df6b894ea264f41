/**
 * Saves a running VM. Everything possible is done before the guest stops:
 *
 *   prepare     memory file from the VM's base, its dirty ranges allocated; the next overlays, opened
 *   ┌ freeze    the agent freezes the user's processes, so that a copy runs none before it has its own identity
 *   │ stop      the guest
 *   │ devices   their state, then the pages that the VM has changed; repeated until both are of one moment
 *   │ disk      the overlays on top: of the scratch disk, and of the persistent disk if there is one
 *   └ start, thaw
 *   finish      sync and digests, if the capture is durable
 *
 * The guest continues after any failure. With `hold` it does not continue once all is saved: that is a hibernation.
 */
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { nowUnixNs } from '../agent-client/guest-clock.ts';
import { MemoryWriter } from './memory-writer.ts';
import type { VmDriver } from '../driver/vm-driver.ts';
import { StepTimer } from '../vm/step-timer.ts';
import { enterStep } from '../vm/steps.ts';
import { traced } from '../../lib/tracing/tracing.ts';
import { freezeFile, VmDirectory } from '../disk/vm-directory.ts';
import { DEVICES_NAME } from '../vm/vm-files.ts';
import type { Attachment } from '../workspace/attachment.ts';
import { tryToSync } from '../workspace/guest-workspace.ts';
import type { SealedMoment } from '../workspace/sealed-moment.ts';
import { DeadlineError, stretched, withDeadline } from '../../lib/waiting/deadline.ts';

/** Processes that cannot be frozen by then are saved as they are. */
const FREEZE_DEADLINE_MS = 500;
/** The longest deadline that the agent accepts. */
const LONGEST_FREEZE_DEADLINE_MS = 10_000;
/** How long a hibernation waits for the object store, while the guest runs. */
const FLUSH_TIMEOUT_MS = 60_000;
const THAW_ATTEMPTS = 3;
const MIB = 1024 * 1024;

export interface CaptureJob {
  driver: VmDriver;
  /** The VM's directory. */
  directory: VmDirectory;
  memMiB: number;
  /** The program of the memory writer. */
  program: string;
  /** An empty directory, filled with the files of the capture. */
  target: string;
  /** Whether the capture must survive a power loss of the host. */
  isDurable: boolean;
  log: Logger;
  /** Called while the guest is stopped, with all of its state in `target`. If it succeeds the guest stays stopped. */
  hold?: (taken: TakenCapture) => Promise<void>;
}

export interface TakenCapture {
  /** Time from the freeze of the first process to the thaw of the last; with `hold`, until it is called. */
  pauseMs: number;
  /** The pause by step, ms. */
  timingsMs: Readonly<Record<string, number>>;
  /** Digest of the memory file; empty unless durable. */
  memoryDigest: string;
  memoryBytes: number;
  /** The persistent disk of this moment, which the caller disposes; undefined without a disk. */
  moment: SealedMoment | undefined;
}

/** Takes a capture. Throws `guest_unreachable` if the VM has ended meanwhile, whichever step detects it. */
export async function takeCapture(job: CaptureJob): Promise<TakenCapture> {
  const { driver, hold } = job;
  try {
    return await traced('vm.capture', () =>
      driver.capture(() => (hold === undefined ? takeAndGoOn(job) : takeAndHold(job, hold))),
    );
  } catch (error) {
    if (error instanceof AppError || !(await driver.hasGone())) throw error;
    const message = 'the virtual machine ended while it was being saved';
    throw new AppError('guest_unreachable', message, { cause: error });
  }
}

async function takeAndGoOn(job: CaptureJob): Promise<TakenCapture> {
  const { driver, directory } = job;
  const { chain, workspace } = driver.running;
  await using undo = new AsyncDisposableStack();
  await enterStep('capture.prepare');
  const writer = undo.use(await startWriter(job));
  const sealing = undo.use(await workspace?.beginSeal());
  const overlay = await chain.prepare();
  let isOnTop = false;
  let moment: SealedMoment | undefined;
  undo.defer(async () => {
    if (!isOnTop) await chain.drop(overlay);
  });
  using undoMoment = new DisposableStack();
  const frozen = [...chain.numbers];
  const timer = new StepTimer('vm.capture');
  await standStill(job, timer, async () => {
    await copyState(job, writer, timer);
    await enterStep('capture.disk');
    await chain.push(overlay);
    isOnTop = true;
    moment = undoMoment.use(await sealing?.push());
    timer.end('disk');
  });
  await sealing?.[Symbol.asyncDispose]();
  // More accurate than the clock sent with the thaw, which must not wait for the measurement.
  const tellingTime = driver.tellTime();
  await enterStep('capture.finish');
  directory.linkInto(new VmDirectory(job.target), frozen);
  const { allocatedBytes, digest } = await writer.finish({ sync: job.isDurable });
  freezeFile(join(job.target, 'ram'));
  chain.flattenIfLong();
  await tellingTime;
  undoMoment.move();
  return { ...pauseOf(timer), memoryDigest: digest, memoryBytes: allocatedBytes, moment };
}

/** Takes a hibernation. The scratch disk needs no new overlay, as this one is not written any more. */
async function takeAndHold(
  job: CaptureJob,
  hold: (taken: TakenCapture) => Promise<void>,
): Promise<TakenCapture> {
  const { driver, directory, log } = job;
  const { chain, workspace } = driver.running;
  await using undo = new AsyncDisposableStack();
  await enterStep('capture.prepare');
  // Another sandbox may attach the disk, and must find what this guest has written.
  if (workspace !== undefined) await tryToSync(() => driver.session(), log);
  // Most of the disk while the guest runs, and to learn whether the object store answers.
  await flush(workspace);
  const writer = undo.use(await startWriter(job));
  const sealing = undo.use(await workspace?.beginSeal());
  await chain.settle();
  const timer = new StepTimer('vm.capture');
  undo.defer(() => goOn(driver));
  await freeze(driver);
  timer.end('freeze');
  await enterStep('capture.stop');
  await driver.running.vm.stop();
  timer.end('stop');
  await copyState(job, writer, timer);
  using moment = await sealing?.push();
  await sealing?.[Symbol.asyncDispose]();
  await enterStep('capture.finish');
  directory.linkInto(new VmDirectory(job.target), chain.numbers);
  const { allocatedBytes, digest } = await writer.finish({ sync: job.isDurable });
  freezeFile(join(job.target, 'ram'));
  const taken = { ...pauseOf(timer), memoryDigest: digest, memoryBytes: allocatedBytes, moment };
  await hold(taken);
  undo.move();
  return taken;
}

/** The deadline ends only this wait. */
async function flush(workspace: Attachment | undefined): Promise<void> {
  const flushed = workspace?.flush() ?? Promise.resolve();
  flushed.catch(() => undefined);
  try {
    await withDeadline('writing the disk to the object store', FLUSH_TIMEOUT_MS, flushed);
  } catch (error) {
    if (!(error instanceof DeadlineError)) throw error;
    const message =
      'the object store did not take what the sandbox wrote to its disk in time; try again later';
    throw new AppError('unavailable', message, { cause: error });
  }
}

function startWriter({ driver, directory, memMiB, program, target }: CaptureJob): Promise<MemoryWriter> {
  return MemoryWriter.start(program, {
    pid: driver.running.vm.identity.pid,
    basePath: directory.ram,
    targetPath: join(target, 'ram'),
    sizeBytes: memMiB * MIB,
  });
}

async function standStill(
  { driver }: CaptureJob,
  timer: StepTimer,
  work: () => Promise<void>,
): Promise<void> {
  try {
    await freeze(driver);
    timer.end('freeze');
    await enterStep('capture.stop');
    await driver.running.vm.stop();
    timer.end('stop');
    await work();
  } finally {
    await goOn(driver);
    timer.end('go_on');
  }
}

/** Copies devices and memory of one moment. */
async function copyState(
  { driver, target }: CaptureJob,
  writer: MemoryWriter,
  timer: StepTimer,
): Promise<void> {
  await enterStep('capture.devices');
  await driver.running.vm.saveState(join(target, DEVICES_NAME), async () => {
    timer.end('devices');
    await enterStep('capture.memory');
    await writer.copy();
    timer.end('memory');
  });
}

function pauseOf({ timingsMs }: StepTimer): Pick<TakenCapture, 'pauseMs' | 'timingsMs'> {
  const pauseMs = Object.values(timingsMs).reduce((sum, ms) => sum + ms, 0);
  return { pauseMs, timingsMs };
}

/**
 * Freezes the user's processes, as a best effort: root in the guest can move its processes elsewhere, which harms only
 * its own copies. A failed call may still have frozen them.
 */
async function freeze(driver: VmDriver): Promise<void> {
  await enterStep('capture.freeze');
  const session = await driver.session();
  const deadlineMs = Math.min(stretched(FREEZE_DEADLINE_MS), LONGEST_FREEZE_DEADLINE_MS);
  await session.call('POST', '/freeze', { deadline_ms: deadlineMs });
}

async function goOn(driver: VmDriver): Promise<void> {
  // The VM has ended meanwhile: there is nothing to continue.
  if (!driver.isUp) return;
  await driver.running.vm.start();
  await enterStep('capture.thaw');
  await thaw(driver);
}

/**
 * Thaws the user's processes and sets the guest's clock, which stopped with the guest. Uses a new session if the old
 * one is lost. An agent that receives no thaw thaws by itself after a minute.
 */
export async function thaw(driver: VmDriver): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      const session = await driver.session();
      await session.call('POST', '/thaw', { clock_unix_ns: nowUnixNs() });
      return;
    } catch (error) {
      if (attempt === THAW_ATTEMPTS || !driver.isUp) throw error;
    }
  }
}
