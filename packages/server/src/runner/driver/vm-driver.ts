/**
 * The driver of one VM in its runner: the only writer of its state.
 *
 *   creating ──► running ──► ending ──► ended
 *       └───────────────────────▲
 *
 * Every step of a create registers its undoing before it is done: on disk by the VM's record (for the next
 * runner process) and in the release list (for this one). Ending runs that list whatever the step was.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { VmEgress } from '../../lib/protocol/egress-protocol.ts';
import { hostMoment } from '../../lib/host-clock.ts';
import { SerialQueue } from '../../lib/waiting/serial-queue.ts';
import {
  toBootMoment,
  type EndReason,
  type VmEnd,
  type VmInfo,
  type VmRollback,
  type VmUsage,
} from '../../lib/protocol/runner-protocol.ts';
import type { VmRecord } from '../vm/vm-record.ts';
import { AgentSession } from '../agent-client/agent-session.ts';
import { tellTime } from '../agent-client/guest-clock.ts';
import { TEMPLATE_GENERATION } from '../agent-client/rehearse.ts';
import { SharedSession } from '../agent-client/shared-session.ts';
import type { GroupUsage } from '../confinement/cgroup-usage.ts';
import type { OverlayChain } from '../disk/overlay-chain.ts';
import { isAlive, type ProcessUsage } from '../host/host-process.ts';
import type { VmHandle } from '../vm/vmm.ts';
import { EndRetry } from './end-retry.ts';
import { enterStep } from '../vm/steps.ts';
import { toEgressRecord } from './vm-egress.ts';

const RECONNECT_TIMEOUT_MS = 15_000;
/** Of each step of an opening that all callers share: as long as the most patient of them waits. */
export const OPENING_TIMEOUT_MS = 30_000;
/** Far more than a killed process needs until its monitor is seen to be closed. */
const GOING_MS = 1000;

export type VmState = 'creating' | 'running' | 'ending' | 'ended';

export interface DriverHooks {
  /** Writes a change to the VM's record on disk, before what it says is done. */
  note: (change: RecordChange) => void;
  /** Settles when all that the VM has sent is noted; called once the VMM is gone. */
  endEgress: () => Promise<void>;
  /** Makes the end durable; called after that, and before anything is released. */
  recordEnd: (end: VmEnd) => void | Promise<void>;
  /** What the VM's control groups have counted; asked when its process is gone. */
  groupUsage: () => GroupUsage;
  /** The last one that the VM came from. */
  findRollback: () => VmRollback | undefined;
}

export interface DriverParts {
  info: VmInfo;
  egress: VmEgress;
  /** Those of what it is made from. */
  counters: AgentCounters;
  hooks: DriverHooks;
  log: Logger;
}

export type RecordChange = Partial<
  Pick<VmRecord, 'generation' | 'capturing' | 'hibernating' | 'end' | 'retired' | 'egress'>
>;

/** What the agent has been told last; a copy of the VM goes on from the same numbers. */
export interface AgentCounters {
  /** Generation of the last session. */
  session: number;
  /** Of the last `resume`: the agent does each only once, and none with a lower number. */
  resume: number;
}

export const TEMPLATE_COUNTERS: AgentCounters = { session: TEMPLATE_GENERATION, resume: TEMPLATE_GENERATION };

export class VmDriver {
  /** Names the VM's files, sockets and TAP; a sandbox's id it gets when it is claimed. */
  readonly unit: string;
  #info: VmInfo;
  readonly #hooks: DriverHooks;
  readonly #log: Logger;
  readonly #release: (() => void | Promise<void>)[] = [];
  #state: VmState = 'creating';
  #egress: VmEgress;
  readonly #changes = new SerialQueue();
  #vm: VmHandle | undefined;
  readonly #session = new SharedSession(() => this.#openSession());
  #creation: Promise<unknown> = Promise.resolve();
  #counters: AgentCounters;
  #chain: OverlayChain | undefined;
  #isCapturing = false;
  /** Settles when a guest that an earlier process was saving goes on. */
  #lettingGo: Promise<unknown> = Promise.resolve();
  #isRetired = false;
  #isDestroyed = false;
  #lastUsage: ProcessUsage = { cpuMs: 0, memPeakBytes: 0 };
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

  /** From here on the VM is that sandbox's. */
  claim(info: VmInfo, egress: VmEgress): void {
    this.assertCreating();
    this.#info = info;
    this.#egress = egress;
  }

  /** What its sandbox may send, with secrets: copies of the VM inherit it. */
  get egress(): VmEgress {
    return this.#egress;
  }

  /**
   * Changes what the sandbox of a VM that runs may send; `apply` puts it in force. One after the other. What was asked
   * for last stays, also when it could not be put in force: whoever asked asks again.
   */
  changeEgress(egress: VmEgress, apply: (former: VmEgress) => Promise<void>): Promise<void> {
    return this.#changes.run(() => this.#changeEgress(egress, apply));
  }

  async #changeEgress(egress: VmEgress, apply: (former: VmEgress) => Promise<void>): Promise<void> {
    if (this.#state !== 'running') throw new AppError('invalid_state', `the sandbox is ${this.#state}`);
    this.#hooks.note({ egress: toEgressRecord(egress) });
    const former = this.#egress;
    this.#egress = egress;
    await apply(former);
  }

  get state(): VmState {
    return this.#state;
  }

  /** Registers what takes a step back; run in reverse order when the VM ends. */
  onRelease(undo: () => void | Promise<void>): void {
    this.#release.push(undo);
  }

  /** From here on the VM's own end is watched. */
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

  /** The guest has answered `resume`: a first command could run. */
  markRunning(): void {
    this.assertCreating();
    this.#state = 'running';
    this.#info.state = 'running';
  }

  /** Takes over a VM that an earlier process created. */
  adopt(vm: VmHandle, chain: OverlayChain): void {
    this.#state = 'running';
    this.attach(vm, chain);
  }

  /** The VM that runs, with its disk. Throws `invalid_state` when there is none. */
  get running(): { vm: VmHandle; chain: OverlayChain } {
    if (this.#state !== 'running' || this.#vm === undefined || this.#chain === undefined)
      throw new AppError('invalid_state', `the sandbox is ${this.#state}`);
    return { vm: this.#vm, chain: this.#chain };
  }

  /** The create under way: an end asked for meanwhile waits until its current step has settled. */
  trackCreation(creation: Promise<unknown>): void {
    this.#creation = creation.catch(() => undefined);
  }

  /** Aborted when an end is asked for: waits of a create need not be waited out. */
  get endAsked(): AbortSignal {
    return this.#endAsked.signal;
  }

  /** The VM ended by itself, or is about to be ended for that. */
  get isLost(): boolean {
    return this.#isEnding || (this.#vm !== undefined && !isAlive(this.#vm.identity));
  }

  get #isEnding(): boolean {
    return this.#state === 'ending' || this.#state === 'ended';
  }

  /** Whether the VM has ended, or is just ending: QEMU's sockets close a moment before its process is gone. */
  async hasGone(): Promise<boolean> {
    const vm = this.#vm;
    if (vm === undefined) return false;
    if (this.#isEnding || !isAlive(vm.identity)) return true;
    return Promise.race([vm.ended.then(() => true), delay(GOING_MS, false)]);
  }

  /** Throws when an end was asked for while the VM was being created. */
  assertCreating(): void {
    if (this.#state !== 'creating') throw destroyedMeanwhile();
  }

  /** The session with the agent, opened again when it was lost. */
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
    return AgentSession.open({
      socketDirectory: vm.socketDirectory,
      generation,
      timeoutMs: OPENING_TIMEOUT_MS,
      data: vm.takeDataSocket(),
      assertAlive: () => {
        if (!isAlive(vm.identity)) throw new AppError('guest_unreachable', 'the VM ended');
      },
    });
  }

  get counters(): Readonly<AgentCounters> {
    return this.#counters;
  }

  /** Number of the next `resume`. */
  nextResume(): number {
    this.#counters.resume += 1;
    return this.#counters.resume;
  }

  /**
   * Does what makes the guest stand still. Until it is done nobody else stops the guest or lets it go on. Throws
   * `invalid_state` for a second one.
   */
  async capture<T>(work: () => Promise<T>): Promise<T> {
    await this.#lettingGo;
    if (this.#isCapturing) throw new AppError('invalid_state', 'the sandbox is being saved already');
    return this.#standStill(work);
  }

  /** Lets go a guest that an earlier process was saving. Whoever wants to save it now waits for that: it was told to. */
  letGo(work: () => Promise<void>): Promise<void> {
    const letting = this.#standStill(work);
    this.#lettingGo = letting.catch(() => undefined);
    return letting;
  }

  async #standStill<T>(work: () => Promise<T>): Promise<T> {
    this.#isCapturing = true;
    try {
      this.#hooks.note({ capturing: true });
      return await work();
    } finally {
      this.#isCapturing = false;
      // A record that says so still makes the next process let go a guest that goes: nothing happens.
      if (this.#state === 'running') this.#tryNote({ capturing: false });
    }
  }

  /** On disk: from when that hibernation is complete, the VM is not to go on. */
  noteHibernation(captureId: string): void {
    this.#hooks.note({ hibernating: captureId });
  }

  /** It was not completed, and never will be. */
  dropHibernation(): void {
    this.#tryNote({ hibernating: undefined });
  }

  /** What a request to the guest would wait for: a disk of the host that has no room. */
  get isPaused(): boolean {
    return this.#vm?.isPaused ?? false;
  }

  async pause(): Promise<void> {
    if (!this.#isCapturing) await this.#vm?.pause();
  }

  async continue(): Promise<void> {
    if (this.#isCapturing) return;
    await this.#vm?.continue();
    // Nothing waits for a guest that does not answer.
    void this.tellTime();
  }

  /** After a pause: the guest's clock stood still with it. Never rejects. */
  async tellTime(): Promise<void> {
    try {
      await tellTime(await this.session());
    } catch (error) {
      this.#log.debug({ err: error }, 'a guest that was paused has not been told the time');
    }
  }

  sampleUsage(): void {
    this.#lastUsage = this.#vm?.usage() ?? this.#lastUsage;
  }

  /**
   * Ends the VM; every caller gets the one end, whose reason is the first one's. After a step that failed (a full
   * disk under the spool) nothing has been released; it is tried again by itself, and by whoever asks.
   */
  end(reason: EndReason): Promise<VmEnd> {
    if (reason === 'destroyed') this.#isDestroyed = true;
    this.#ending ??= this.#endAs(reason).catch((error: unknown) => {
      this.#ending = undefined;
      // A retry that fails comes here again and is logged by `schedule`.
      this.#endRetry.schedule(error, () => void this.end(reason).catch(() => undefined));
      throw error;
    });
    return this.#ending;
  }

  /** The sandbox lives on elsewhere: from here on nobody is told of the VM's end, whoever ends it. */
  disown(): void {
    this.#isRetired = true;
    // Noted again with its end, before anything is ended.
    this.#tryNote({ retired: true });
  }

  /** Ends the VM of a sandbox that lives on elsewhere. */
  async retire(): Promise<VmUsage> {
    this.disown();
    const { cpu_ms, mem_peak_bytes } = await this.end('destroyed');
    return { cpu_ms, mem_peak_bytes };
  }

  get isRetired(): boolean {
    return this.#isRetired;
  }

  /** Somebody has asked for its end, whatever it ended by. */
  get isDestroyed(): boolean {
    return this.#isDestroyed;
  }

  /** What its process has used until now. */
  get usage(): VmUsage {
    const { cpuMs, memPeakBytes } = this.#vm?.usage() ?? this.#lastUsage;
    return { cpu_ms: Math.round(cpuMs), mem_peak_bytes: memPeakBytes };
  }

  /** Goes on with an end that an earlier process had noted. */
  finishEnd(end: VmEnd): Promise<VmEnd> {
    this.#end = end;
    return this.end(end.reason);
  }

  async #endAs(reason: EndReason): Promise<VmEnd> {
    this.#state = 'ending';
    this.#endAsked.abort(destroyedMeanwhile());
    await this.#creation;
    this.#end ??= this.#describeEnd(reason);
    await enterStep('end.note');
    this.#hooks.note({ end: this.#end, ...(this.#isRetired ? { retired: true } : {}) });
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
    this.#state = 'ended';
    return this.#end;
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
   * A process that died by itself can no longer be asked: its group has counted to the end. The group's memory has page
   * cache in it, so it is believed only then.
   */
  #finalUsage(atEnd: ProcessUsage | undefined): ProcessUsage {
    const last = atEnd ?? this.#lastUsage;
    const group = this.#hooks.groupUsage();
    return {
      cpuMs: Math.max(last.cpuMs, group.cpuMs ?? 0),
      memPeakBytes:
        atEnd === undefined ? Math.max(last.memPeakBytes, group.memPeakBytes ?? 0) : last.memPeakBytes,
    };
  }

  /** One undoing that fails must not keep the others from running. */
  async #releaseAll(): Promise<void> {
    for (const undo of this.#release.toReversed()) {
      try {
        await undo();
      } catch (error) {
        this.#log.error({ err: error }, 'a resource of an ended VM could not be released');
      }
    }
  }

  /** For what is as true without: a disk that is full must not make more of it. */
  #tryNote(change: RecordChange): void {
    try {
      this.#hooks.note(change);
    } catch (error) {
      this.#log.warn({ err: error }, 'the record of a VM was not brought up to date');
    }
  }

  /** Lets the VM live on without this process. */
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
