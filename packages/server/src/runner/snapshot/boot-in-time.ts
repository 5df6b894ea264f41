/** Starts the VM that becomes a template: by a cold boot, or from the saved state of a booted guest. */
import type { Logger } from 'pino';
import { DeadlineError, untilAborted } from '../../lib/waiting/deadline.ts';
import { AgentSession } from '../agent-client/agent-session.ts';
import { isInTime, readTimer } from '../agent-client/guest-timer.ts';
import { TEMPLATE_GENERATION } from '../agent-client/rehearse.ts';
import { copyBootFiles, makeBootFiles } from '../vm/boot-files.ts';
import { VmGoneError, type SavedState, type VmHandle, type VmLaunch, type Vmm } from '../vm/vmm.ts';

/** A cold boot under emulation takes some seconds; on a busy machine a multiple of that. */
const BOOT_TIMEOUT_MS = 120_000;
/** Timeout of the agent's first operations, on an image whose files are not cached yet. */
const FIRST_TIME_TIMEOUT_MS = 60_000;
/** With four busy processes on two cores, up to every second boot measures a wrong rate. */
const MAX_BOOTS = 8;
/** A guest that does not answer after its boot is rare, and costs its deadline. */
const MAX_SILENT_BOOTS = 2;

export interface Boot {
  vmm: Vmm;
  launch: VmLaunch;
  /** Created anew for each boot. */
  ramPath: string;
  /** Aborted when no caller waits for the template any more. */
  signal: AbortSignal;
  log: Logger;
}

interface Booted {
  vm: Pick<VmHandle, 'kill' | 'consoleTail'>;
  session: Pick<AgentSession, 'call' | 'close'>;
}

/** Boots a guest with a correct timer. Leaves no VM when it fails. */
export function bootInTime(boot: Boot): Promise<{ vm: VmHandle; session: AgentSession }> {
  return repeatUntilInTime(() => {
    boot.signal.throwIfAborted();
    return bootOnce(boot);
  }, boot.log);
}

/** Repeats `boot` until the guest's timer is correct. The last guest is returned in any case: better than none. */
export async function repeatUntilInTime<T extends Booted>(boot: () => Promise<T>, log: Logger): Promise<T> {
  let silent = 0;
  for (let boots = 1; ; boots += 1) {
    await using undo = new AsyncDisposableStack();
    const booted = await boot();
    undo.defer(() => booted.vm.kill());
    const timer = await readTimer(booted.session).catch(async (error: unknown) => {
      if (await noteSilence(booted.vm, error, log)) silent += 1;
      else throw error;
      if (silent === MAX_SILENT_BOOTS) throw error;
      return undefined;
    });
    if (timer !== undefined) {
      const isRight = isInTime(timer);
      if (!isRight) log.warn({ timer, boots }, 'a guest measured a wrong timer rate during its boot');
      if (isRight || boots >= MAX_BOOTS) {
        undo.move();
        return booted;
      }
    }
    booted.session.close();
  }
}

/** Logs the console of a guest whose agent does not answer. Returns false if the error is not a DeadlineError. */
async function noteSilence(vm: Booted['vm'], error: unknown, log: Logger): Promise<boolean> {
  if (!(error instanceof DeadlineError)) return false;
  const console = await vm.consoleTail().catch((cause: unknown) => `cannot be read: ${String(cause)}`);
  log.warn({ err: error, console }, 'a booting guest does not answer');
  return true;
}

async function bootOnce({
  vmm,
  launch,
  ramPath,
  signal,
  log,
}: Boot): Promise<{ vm: VmHandle; session: AgentSession }> {
  const { socketDirectory, uid, shape } = launch;
  makeBootFiles({ socketDirectory, ramPath, memMiB: shape.memMiB, uid });
  await using undo = new AsyncDisposableStack();
  const vm = await vmm.boot(launch, ramPath);
  undo.defer(() => vm.kill());
  const session = await openSession(vm, signal).catch(async (error: unknown) => {
    await noteSilence(vm, error, log);
    throw error;
  });
  undo.move();
  return { vm, session };
}

/** Thrown when the saved state of a booted guest cannot be restored, or its agent does not answer afterwards. */
export class BootedGuestError extends Error {
  constructor(cause: unknown) {
    super('the saved state of a booted guest cannot be used', { cause });
    this.name = 'BootedGuestError';
  }
}

/**
 * Restores a booted guest on a copy of its saved memory. Leaves no VM when it fails. `isInTime` says whether the
 * guest's timer has the right rate. Throws {@link BootedGuestError}, or the reason of the signal.
 */
export async function goOnFrom(
  saved: SavedState,
  boot: Omit<Boot, 'log'>,
): Promise<{ vm: VmHandle; session: AgentSession; isInTime: boolean }> {
  const { launch, ramPath, signal } = boot;
  const { socketDirectory, uid } = launch;
  await copyBootFiles(saved.ramPath, { socketDirectory, ramPath, uid });
  signal.throwIfAborted();
  return goOn(saved, boot).catch((error: unknown) => {
    throw signal.aborted ? error : new BootedGuestError(error);
  });
}

async function goOn(
  saved: SavedState,
  { vmm, launch, ramPath, signal }: Omit<Boot, 'log'>,
): ReturnType<typeof goOnFrom> {
  await using undo = new AsyncDisposableStack();
  const vm = await vmm.restore(launch, { ...saved, ramPath }, { ownsRam: true });
  undo.defer(() => vm.kill());
  await vm.continue();
  const session = await openSession(vm, signal);
  const timer = await readTimer(session);
  undo.move();
  return { vm, session, isInTime: isInTime(timer) };
}

function openSession(vm: VmHandle, signal: AbortSignal): Promise<AgentSession> {
  const opening = AgentSession.open({
    vm,
    generation: TEMPLATE_GENERATION,
    timeoutMs: BOOT_TIMEOUT_MS,
    answerTimeoutMs: FIRST_TIME_TIMEOUT_MS,
  }).catch((error: unknown) => {
    // No guest of the caller: its create fails for another reason than a sandbox that ended.
    if (error instanceof VmGoneError)
      throw new Error('the VM ended while the template booted', { cause: error });
    throw error;
  });
  return untilAborted(signal, opening);
}
