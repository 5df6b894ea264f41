/**
 * The driver of one VM in its runner: the only writer of its state.
 *
 *                   ┌──────► saving ─┐
 *                   │          │     │
 *   creating ──► running ◄─────┘     ▼
 *       │           └──────────► ending ──► ended
 *       └───────────────────────────▲
 *
 * Each step of a create registers its undo before it runs: on disk in the VM's record (for the next runner process) and
 * in the release list (for this one). Ending runs that list after any step.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { VmEgress } from '../../lib/protocol/egress-protocol.ts';
import type { VmPhase } from '../../lib/protocol/metrics-protocol.ts';
import { hostMoment } from '../../lib/host-clock.ts';
import { invariant } from '../../lib/invariant.ts';
import { SerialQueue } from '../../lib/waiting/serial-queue.ts';
import {
  toBootMoment,
  type EndReason,
  type VmEnd,
  type VmInfo,
  type VmUsage,
} from '../../lib/protocol/runner-protocol.ts';
import { AgentSession, SharedSession } from '../agent-client/agent-session.ts';
import { tellTime } from '../agent-client/guest-clock.ts';
import { TEMPLATE_GENERATION } from '../agent-client/rehearse.ts';
import type { OverlayChain } from '../disk/overlay-chain.ts';
import type { Attachment } from '../workspace/attachment.ts';
import { tryToSync } from '../workspace/guest-workspace.ts';
import { isAlive, type ProcessUsage } from '../host/host-process.ts';
import type { VmHandle } from '../vm/vmm.ts';
import { EndRetry } from './end-retry.ts';
import { enterStep } from '../vm/steps.ts';
import type { AgentCounters, DriverHooks, DriverParts, RecordChange } from './vm-driver.types.ts';
import { toEgressRecord } from './vm-egress.ts';

const RECONNECT_TIMEOUT_MS = 15_000;
/** Timeout of each step of an opening, which all callers share: as long as the most patient of them waits. */
export const OPENING_TIMEOUT_MS = 30_000;
/** Far longer than it takes until the monitor of a killed process is closed. */
const GOING_MS = 1000;

/** The phases that may follow each phase. */
const NEXT_PHASES: Readonly<Record<VmPhase, readonly VmPhase[]>> = {
  creating: ['running', 'ending'],
  running: ['saving', 'ending'],
  saving: ['running', 'ending'],
  // A failed end is retried.
  ending: ['ending', 'ended'],
  ended: [],
};

export const TEMPLATE_COUNTERS: AgentCounters = { session: TEMPLATE_GENERATION, resume: TEMPLATE_GENERATION };

export class VmDriver {
  /** Names the VM's files, sockets and TAP. The VM gets a sandbox id when it is claimed. */
  readonly unit: string;
  #info: VmInfo;
  readonly #hooks: DriverHooks;
  readonly #log: Logger;
  readonly #release: (() => void | Promise<void>)[] = [];
  #phase: VmPhase = 'creating';
  #egress: VmEgress;
  readonly #changes = new SerialQueue();
  #vm: VmHandle | undefined;
  readonly #session = new SharedSession(() => this.#openSession());
  #creation: Promise<unknown> = Promise.resolve();
  #counters: AgentCounters;
  #chain: OverlayChain | undefined;
  #workspace: Attachment | undefined;
  /** Why the guest must not run; undefined if it may. */
  #heldFor: string | undefined;
  /** Settles when a guest that an earlier process was saving has been continued. */
  #continued: Promise<unknown> = Promise.resolve();
  #isRetired = false;
  #isDestroyed = false;
  #lastUsage: ProcessUsage = { cpuMs: 0, memBytes: 0, memPeakBytes: 0 };
  #ending: Promise<VmEnd> | undefined;
  readonly #endRetry: EndRetry;
  readonly #endAsked = new AbortController();
  #end: VmEnd | undefined;

  constructor(unit: string, { info, egress, counters, hooks, log }: DriverParts) {
    this.unit = unit;
    this.#egress = egress;
    this.#info = info;
    this.#counters = { ...counters };
    this.#hooks = hooks;
    this.#log = log;
    this.#endRetry = new EndRetry(log);
  }

  get info(): VmInfo {
    return this.#info;
  }

  /** Gives the VM to a sandbox. */
  claim(info: VmInfo, egress: VmEgress): void {
    this.assertCreating();
    this.#info = info;
    this.#egress = egress;
  }

  /** The sandbox's egress rules, with secrets; copies of the VM inherit them. */
  get egress(): VmEgress {
    return this.#egress;
  }

  /**
   * Changes the egress rules of a running VM; `apply` puts them in force. Changes run one after another. The last
   * requested rules are kept even if `apply` fails: the caller retries. Throws `invalid_state` unless the VM runs.
   */
  changeEgress(egress: VmEgress, apply: (former: VmEgress) => Promise<void>): Promise<void> {
    return this.#changes.run(() => this.#changeEgress(egress, apply));
  }

  async #changeEgress(egress: VmEgress, apply: (former: VmEgress) => Promise<void>): Promise<void> {
    if (!this.isUp) throw new AppError('invalid_state', `the sandbox is ${this.#phase}`);
    this.#hooks.note({ egress: toEgressRecord(egress) });
    const former = this.#egress;
    this.#egress = egress;
    await apply(former);
  }

  get phase(): VmPhase {
    return this.#phase;
  }

  /** Whether the VM serves its sandbox, also while it is being saved. */
  get isUp(): boolean {
    return this.#phase === 'running' || this.#phase === 'saving';
  }

  #enter(phase: VmPhase): void {
    invariant(NEXT_PHASES[this.#phase].includes(phase), `a VM went from ${this.#phase} to ${phase}`);
    this.#phase = phase;
  }

  /** Registers the undo of a step. Undos run in reverse order when the VM ends. */
  onRelease(undo: () => void | Promise<void>): void {
    this.#release.push(undo);
  }

  /** Attaches the VM, and from then on ends it when it ends by itself. */
  attach(vm: VmHandle, chain: OverlayChain): void {
    this.#vm = vm;
    this.#chain = chain;
    vm.ended
      .then(
        (reason) => this.end(reason),
        (error: unknown) => this.#log.error({ err: error }, 'watching the VM failed'),
      )
      .catch((error: unknown) => this.#log.error({ err: error }, 'ending the VM failed'));
  }

  /** The guest gets, or has, this persistent disk. Its data outlives the VM. */
  attachWorkspace(workspace: Attachment): void {
    this.#workspace = workspace;
  }

  get workspace(): Attachment | undefined {
    return this.#workspace;
  }

  /** Marks the VM running: the guest has answered `resume` and can run commands. */
  markRunning(): void {
    this.assertCreating();
    this.#enter('running');
    this.#info.state = 'running';
  }

  /** Adopts a VM that an earlier process created. */
  adopt(vm: VmHandle, chain: OverlayChain): void {
    this.#enter('running');
    this.attach(vm, chain);
  }

  /** The running VM with its disks. Throws `invalid_state` if it does not run. */
  get running(): { vm: VmHandle; chain: OverlayChain; workspace: Attachment | undefined } {
    if (!this.isUp || this.#vm === undefined || this.#chain === undefined)
      throw new AppError('invalid_state', `the sandbox is ${this.#phase}`);
    return { vm: this.#vm, chain: this.#chain, workspace: this.#workspace };
  }

  /** Tracks the running create: an end requested meanwhile waits until its current step has settled. */
  trackCreation(creation: Promise<unknown>): void {
    this.#creation = creation.catch(() => undefined);
  }

  /** Aborted when an end is requested, so that a create stops waiting. */
  get endAsked(): AbortSignal {
    return this.#endAsked.signal;
  }

  /** Whether the VM ended by itself or is being ended. */
  get isLost(): boolean {
    return this.#isEnding || (this.#vm !== undefined && !isAlive(this.#vm.identity));
  }

  get #isEnding(): boolean {
    return this.#phase === 'ending' || this.#phase === 'ended';
  }

  /** Whether the VM has ended or is ending right now: the VMM's sockets close a moment before its process is gone. */
  async hasGone(): Promise<boolean> {
    const vm = this.#vm;
    if (vm === undefined) return false;
    if (this.#isEnding || !isAlive(vm.identity)) return true;
    return Promise.race([vm.ended.then(() => true), delay(GOING_MS, false)]);
  }

  /** Throws `invalid_state` if an end was requested while the VM was being created. */
  assertCreating(): void {
    if (this.#phase !== 'creating') throw destroyedMeanwhile();
  }

  /** Returns the session with the agent, and reopens a lost one. Throws DeadlineError after `timeoutMs`. */
  session(timeoutMs = RECONNECT_TIMEOUT_MS): Promise<AgentSession> {
    return this.#session.get(timeoutMs);
  }

  async #openSession(): Promise<AgentSession> {
    const vm = this.#vm;
    if (vm === undefined || this.#isEnding)
      throw new AppError('guest_unreachable', 'the sandbox has no running VM');
    this.#counters.session += 1;
    const generation = this.#counters.session;
    this.#hooks.note({ generation });
    return AgentSession.open({ vm, generation, timeoutMs: OPENING_TIMEOUT_MS });
  }

  get counters(): Readonly<AgentCounters> {
    return this.#counters;
  }

  /** Returns the number of the next `resume`. */
  nextResume(): number {
    this.#counters.resume += 1;
    return this.#counters.resume;
  }

  /**
   * Runs `work`, which stops the guest. Until it settles no other operation stops or continues the guest. Throws
   * `invalid_state` if another capture is running.
   */
  async capture<T>(work: () => Promise<T>): Promise<T> {
    await this.#continued;
    if (this.#phase === 'saving') throw new AppError('invalid_state', 'the sandbox is already being saved');
    return this.#standStill(work);
  }

  /** Continues a guest that an earlier process was saving. New captures wait until this is done. */
  continueSaved(work: () => Promise<void>): Promise<void> {
    const continued = this.#standStill(work);
    this.#continued = continued.catch(() => undefined);
    return continued;
  }

  async #standStill<T>(work: () => Promise<T>): Promise<T> {
    if (!this.isUp) throw new AppError('invalid_state', `the sandbox is ${this.#phase}`);
    this.#enter('saving');
    try {
      this.#hooks.note({ capturing: true });
      return await work();
    } finally {
      // The VM may have ended meanwhile.
      if (this.isUp) {
        this.#enter('running');
        if (this.#heldFor !== undefined) await this.#vm?.pause();
        // If this write fails, the next process continues a guest that already runs, which does nothing.
        this.#tryNote({ capturing: false });
      }
    }
  }

  /** Records that the VM must not continue once this hibernation is complete. */
  noteHibernation(captureId: string): void {
    this.#setDiskFinal(true);
    this.#hooks.note({ hibernating: captureId });
  }

  /** Removes the record of a hibernation that failed. */
  dropHibernation(): void {
    this.#setDiskFinal(false);
    this.#tryNote({ hibernating: undefined });
  }

  #setDiskFinal(isFinal: boolean): void {
    if (this.#workspace !== undefined) this.#workspace.isFinal = isFinal;
  }

  /** Whether the guest is paused because a host disk is full. A request to it would wait. */
  get isPaused(): boolean {
    return this.#vm?.isPaused ?? false;
  }

  async pause(): Promise<void> {
    if (this.#phase !== 'saving') await this.#vm?.pause();
  }

  async continue(): Promise<void> {
    if (this.#phase === 'saving' || this.#heldFor !== undefined) return;
    await this.#vm?.continue();
    // Not awaited: the guest may not answer.
    void this.tellTime();
  }

  /**
   * Keeps the guest from running until {@link letGo}. Callers get the reason. Throws before the VM is adopted; the caller
   * repeats it.
   */
  async hold(reason: string): Promise<void> {
    this.#heldFor = reason;
    if (this.#vm === undefined) throw new AppError('unavailable', 'the VM is not adopted yet');
    await this.pause();
  }

  async letGo(): Promise<void> {
    this.#heldFor = undefined;
    await this.continue();
  }

  get heldFor(): string | undefined {
    return this.#heldFor;
  }

  /** Sets the guest's clock after a pause, which also stopped the clock. Never rejects. */
  async tellTime(): Promise<void> {
    try {
      await tellTime(await this.session());
    } catch (error) {
      this.#log.debug({ err: error }, 'could not set the clock of a guest after a pause');
    }
  }

  /** Reads the usage of the VM's process, and keeps it for the end. Returns undefined if the process is gone. */
  sampleUsage(): ProcessUsage | undefined {
    const usage = this.#vm?.usage();
    this.#lastUsage = usage ?? this.#lastUsage;
    return usage;
  }

  /**
   * Ends the VM. Every caller gets the same end, with the first caller's reason. If a step fails (a full disk under the
   * spool), nothing has been released; the driver retries, and so does the next caller.
   */
  end(reason: EndReason): Promise<VmEnd> {
    if (reason === 'destroyed') this.#isDestroyed = true;
    this.#ending ??= this.#endAs(reason).catch((error: unknown) => {
      this.#ending = undefined;
      // A failed retry comes here again, and `schedule` logs it.
      this.#endRetry.schedule(error, () => void this.end(reason).catch(() => undefined));
      throw error;
    });
    return this.#ending;
  }

  /** Stops reports of the VM's end, because its sandbox lives on elsewhere. */
  disown(): void {
    this.#isRetired = true;
    // Recorded again with the end, before anything is ended.
    this.#tryNote({ retired: true });
  }

  /** Stops and discards the VM of a sandbox that lives on elsewhere. */
  async retire(): Promise<VmUsage> {
    this.disown();
    const { cpu_ms, mem_peak_bytes } = await this.end('destroyed');
    return { cpu_ms, mem_peak_bytes };
  }

  get isRetired(): boolean {
    return this.#isRetired;
  }

  /** Whether a caller has requested the end, even if the VM ended for another reason. */
  get isDestroyed(): boolean {
    return this.#isDestroyed;
  }

  /** The usage of its process until now. */
  get usage(): VmUsage {
    const { cpuMs, memPeakBytes } = this.#vm?.usage() ?? this.#lastUsage;
    return { cpu_ms: Math.round(cpuMs), mem_peak_bytes: memPeakBytes };
  }

  /** Completes an end that an earlier process recorded. */
  finishEnd(end: VmEnd): Promise<VmEnd> {
    this.#end = end;
    return this.end(end.reason);
  }

  async #endAs(reason: EndReason): Promise<VmEnd> {
    this.#enter('ending');
    this.#endAsked.abort(destroyedMeanwhile());
    await this.#creation;
    this.#end ??= this.#describeEnd(reason);
    await enterStep('end.note');
    this.#hooks.note({ end: this.#end, ...(this.#isRetired ? { retired: true } : {}) });
    if (reason === 'destroyed' && !this.#isRetired) await this.#writeOut();
    this.#session.close();
    this.#chain?.close();
    await enterStep('end.kill');
    await this.#vm?.kill();
    await enterStep('end.report');
    await this.#changes.run(async () => undefined);
    await this.#hooks.endEgress();
    if (!this.#isRetired) await this.#hooks.recordEnd(this.#end);
    await enterStep('end.release');
    await this.#releaseAll();
    this.#endRetry.stop();
    this.#enter('ended');
    return this.#end;
  }

  /** Has the guest write to its persistent disk what is only in its memory, if it can answer. */
  async #writeOut(): Promise<void> {
    const vm = this.#vm;
    if (this.#workspace?.hasGuest !== true || vm === undefined || vm.isPaused || !isAlive(vm.identity))
      return;
    await tryToSync(() => this.#session.get(RECONNECT_TIMEOUT_MS), this.#log);
  }

  #describeEnd(reason: EndReason): VmEnd {
    const now = hostMoment();
    const usage = this.#finalUsage(this.#vm?.usage());
    const rollback = this.#hooks.findRollback();
    return {
      id: this.#info.id,
      reason,
      cpu_ms: Math.round(usage.cpuMs),
      mem_peak_bytes: usage.memPeakBytes,
      ended_at: new Date(now.wallMs).toISOString(),
      ended_on_boot: toBootMoment(now),
      ...(rollback === undefined ? {} : { rollback }),
    };
  }

  /**
   * The usage of a dead process can no longer be read: the control group has counted to the end. The group's memory
   * includes page cache, so it is used only then.
   */
  #finalUsage(atEnd: ProcessUsage | undefined): Omit<ProcessUsage, 'memBytes'> {
    const last = atEnd ?? this.#lastUsage;
    const group = this.#hooks.groupUsage();
    return {
      cpuMs: Math.max(last.cpuMs, group.cpuMs ?? 0),
      memPeakBytes:
        atEnd === undefined ? Math.max(last.memPeakBytes, group.memPeakBytes ?? 0) : last.memPeakBytes,
    };
  }

  /** Runs the undos. A failed undo must not prevent the others. */
  async #releaseAll(): Promise<void> {
    for (const undo of this.#release.toReversed()) {
      try {
        await undo();
      } catch (error) {
        this.#log.error({ err: error }, 'a resource of an ended VM could not be released');
      }
    }
  }

  /** Records a change that is not essential: a full disk must not cause a failure. */
  #tryNote(change: RecordChange): void {
    try {
      this.#hooks.note(change);
    } catch (error) {
      this.#log.warn({ err: error }, 'the record of a VM was not updated');
    }
  }

  /** Detaches from the VM, which keeps running without this process. */
  detach(): void {
    this.#endRetry.stop();
    this.#chain?.close();
    this.#session.close();
    this.#vm?.detach();
  }
}

function destroyedMeanwhile(): AppError {
  return new AppError('invalid_state', 'the sandbox was destroyed while it was created');
}
