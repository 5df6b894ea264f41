/**
 * Saves a VM that runs. Everything that can be done before the guest stands still is done before:
 *
 *   prepare     memory file from the VM's base, its dirty ranges allocated; overlay for the time after, opened
 *   ┌ freeze    the agent holds the user's processes, so that a copy runs none before it has its own identity
 *   │ stop      QEMU
 *   │ devices   their state, then the pages that the VM has changed
 *   │ disk      the overlay on top
 *   └ start, thaw
 *   finish      sync and sums, if it is to last
 *
 * The guest goes on whatever fails. With `hold` it does not go on after all is saved: that is a hibernation.
 */
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import { nowUnixNs } from '../agent-client/guest-clock.ts';
import { MemoryWriter } from './memory-writer.ts';
import type { VmDriver } from '../driver/vm-driver.ts';
import { StepTimer } from '../vm/step-timer.ts';
import { enterStep } from '../vm/steps.ts';
import { freezeFile } from '../disk/overlay-file.ts';
import { VmDirectory } from '../disk/vm-directory.ts';
import { DEVICES_NAME, takeDeviceState } from './device-state.ts';
import { stretched } from '../../lib/waiting/deadline.ts';

/** What cannot be frozen by then is saved as it is. */
const FREEZE_DEADLINE_MS = 500;
/** What the agent accepts. */
const LONGEST_FREEZE_DEADLINE_MS = 10_000;
const THAW_ATTEMPTS = 3;
/** A guest that stands still has an end of what it has sent, if the host reads it, and else nothing is handed over. */
const COPY_ATTEMPTS = 10;
const MIB = 1024 * 1024;

export interface CaptureJob {
  driver: VmDriver;
  /** The VM's. */
  directory: VmDirectory;
  memMiB: number;
  /** Of the memory writer. */
  program: string;
  /** Empty; filled with the files of the capture. */
  target: string;
  /** The host may lose power after this. */
  isDurable: boolean;
  /** Called while the guest stands still, with all of its state in `target`: it does not go on if this succeeds. */
  hold?: (taken: TakenCapture) => Promise<void>;
}

export interface TakenCapture {
  /** From the first process frozen to the last let go; with `hold` until it is called. */
  pauseMs: number;
  /** Where it went. */
  timingsMs: Readonly<Record<string, number>>;
  /** Of the memory file; empty unless durable. */
  memoryDigest: string;
  memoryBytes: number;
}

/** Throws `guest_unreachable` when the VM has ended meanwhile, whichever step found out. */
export async function takeCapture(job: CaptureJob): Promise<TakenCapture> {
  const { driver, hold } = job;
  try {
    return await driver.capture(() => (hold === undefined ? takeAndGoOn(job) : takeAndHold(job, hold)));
  } catch (error) {
    if (error instanceof AppError || !(await driver.hasGone())) throw error;
    const message = 'the virtual machine ended while it was being saved';
    throw new AppError('guest_unreachable', message, { cause: error });
  }
}

async function takeAndGoOn(job: CaptureJob): Promise<TakenCapture> {
  const { driver, directory } = job;
  const { chain } = driver.running;
  await using undo = new AsyncDisposableStack();
  await enterStep('capture.prepare');
  const writer = undo.use(await startWriter(job));
  const overlay = await chain.prepare();
  let isOnTop = false;
  undo.defer(async () => {
    if (!isOnTop) await chain.drop(overlay);
  });
  const frozen = [...chain.numbers];
  const timer = new StepTimer();
  await standStill(job, timer, async () => {
    await copyState(job, writer, timer);
    await enterStep('capture.disk');
    await chain.push(overlay);
    isOnTop = true;
    timer.end('disk');
  });
  // Closer than with the thaw, which must not wait for that.
  const tellingTime = driver.tellTime();
  await enterStep('capture.finish');
  directory.linkInto(new VmDirectory(job.target), frozen);
  const { allocatedBytes, digest } = await writer.finish({ sync: job.isDurable });
  freezeFile(join(job.target, 'ram'));
  chain.flattenIfLong();
  await tellingTime;
  return { ...pauseOf(timer), memoryDigest: digest, memoryBytes: allocatedBytes };
}

/** The disk needs no new overlay: nobody writes to this one any more. */
async function takeAndHold(
  job: CaptureJob,
  hold: (taken: TakenCapture) => Promise<void>,
): Promise<TakenCapture> {
  const { driver, directory } = job;
  const { chain } = driver.running;
  await using undo = new AsyncDisposableStack();
  await enterStep('capture.prepare');
  const writer = undo.use(await startWriter(job));
  await chain.settle();
  const timer = new StepTimer();
  undo.defer(() => goOn(driver));
  await freeze(driver);
  timer.end('freeze');
  await enterStep('capture.stop');
  await driver.running.vm.stop();
  timer.end('stop');
  await copyState(job, writer, timer);
  await enterStep('capture.finish');
  directory.linkInto(new VmDirectory(job.target), chain.numbers);
  const { allocatedBytes, digest } = await writer.finish({ sync: job.isDurable });
  freezeFile(join(job.target, 'ram'));
  const taken = { ...pauseOf(timer), memoryDigest: digest, memoryBytes: allocatedBytes };
  await hold(taken);
  undo.move();
  return taken;
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

/** Of one moment: QEMU hands over what the guest has sent meanwhile, and the memory shows it, not the devices' state. */
async function copyState(job: CaptureJob, writer: MemoryWriter, timer: StepTimer): Promise<void> {
  const { vm } = job.driver.running;
  for (let attempt = 1; attempt <= COPY_ATTEMPTS; attempt += 1) {
    const before = await vm.readHandedOver();
    await copyOnce(job, writer, timer);
    if ((await vm.readHandedOver()) === before) return;
  }
  throw new AppError('unavailable', 'the sandbox has sent too much to be saved at this moment; try again');
}

async function copyOnce(
  { driver, target }: CaptureJob,
  writer: MemoryWriter,
  timer: StepTimer,
): Promise<void> {
  const { vm } = driver.running;
  await enterStep('capture.devices');
  await vm.saveDevices(DEVICES_NAME);
  takeDeviceState(vm.socketDirectory, target);
  timer.end('devices');
  await enterStep('capture.memory');
  await writer.copy();
  timer.end('memory');
}

function pauseOf({ timingsMs }: StepTimer): Pick<TakenCapture, 'pauseMs' | 'timingsMs'> {
  const pauseMs = Object.values(timingsMs).reduce((sum, ms) => sum + ms, 0);
  return { pauseMs, timingsMs };
}

/**
 * Best effort: root in the guest can have moved its processes elsewhere, and only harms its own copies. One that fails
 * may have frozen them all the same.
 */
async function freeze(driver: VmDriver): Promise<void> {
  await enterStep('capture.freeze');
  const session = await driver.session();
  const deadlineMs = Math.min(stretched(FREEZE_DEADLINE_MS), LONGEST_FREEZE_DEADLINE_MS);
  await session.call('POST', '/freeze', { deadline_ms: deadlineMs });
}

async function goOn(driver: VmDriver): Promise<void> {
  // The VM has ended meanwhile: there is nothing to let go.
  if (driver.state !== 'running') return;
  await driver.running.vm.start();
  await enterStep('capture.thaw');
  await thaw(driver);
}

/**
 * By a new session if the old one is lost. An agent that does not answer lets go by itself, after a minute. The guest is
 * told the time: its clock stood still with it.
 */
export async function thaw(driver: VmDriver): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      const session = await driver.session();
      await session.call('POST', '/thaw', { clock_unix_ns: nowUnixNs() });
      return;
    } catch (error) {
      if (attempt === THAW_ATTEMPTS || driver.state !== 'running') throw error;
    }
  }
}
