/**
 * The one writer of a sandbox's state. Callers' requests and the runner's events come in here; the transition table of
 * the contract says what each may do; changes of state pass through one queue, each committed to SQL before it shows.
 *
 *     HTTP ── use, set_timeout, destroy ──►┌────────┐── commit ─► SQL
 *     timer ── expired ───────────────────►│ driver │
 *     runner ── started, ended, lost ─────►└────────┘── PUT, DELETE /vms/{id} ─► runner
 *
 * What is begun goes on when the caller leaves: the driver's promises belong to nobody's connection.
 */
import {
  AppError,
  ALLOWED_DURING,
  findTransition,
  isFinal,
  type DestroyResult,
  type SandboxEvent,
  type SandboxOperation,
  type SandboxRecord,
  type SandboxRequest,
  type StatusReason,
} from '@coppice/contract';
import type { Logger } from 'pino';
import type { HostMoment } from '../../lib/host-clock.ts';
import type { VmEnd } from '../../lib/runner-protocol.ts';
import type { ControlLimits } from '../control-config.ts';
import type { SandboxRow } from '../db/tables.ts';
import type { ImageLogin, RunnerClient } from '../placement/runner-client.ts';
import { momentOf, type Clock } from './clock.ts';
import { CommittedRow } from './committed-row.ts';
import { buildEnding, readEndReason } from './ending.ts';
import { findAgeMs, findIdleMs } from './lifetime.ts';
import { IdleTimer, type ExpiryReason } from './idle-timer.ts';
import { buildDestroyResult, buildRecord } from './record.ts';
import type { SandboxStore } from './sandbox-store.ts';
import { SandboxVm } from './sandbox-vm.ts';
import { SerialQueue } from './serial-queue.ts';
import { enterRecordStep } from './steps.ts';

/** After an outage of the service, so that callers can come back before their sandboxes are gone. */
const OUTAGE_GRACE_MS = 60_000;

const LOST = { event: 'lost', reason: 'vm_lost' } as const;

export interface DriverParts {
  runner: RunnerClient;
  store: SandboxStore;
  clock: Clock;
  limits: ControlLimits;
  log: Logger;
  /** The sandbox has ended and is committed as such. */
  onFinal: (driver: SandboxDriver) => void;
}

export class SandboxDriver {
  readonly #parts: DriverParts;
  readonly #queue = new SerialQueue();
  readonly #log: Logger;
  readonly #vm: SandboxVm;
  readonly #row: CommittedRow;
  #operation: SandboxOperation | null = null;
  #timer: IdleTimer | undefined;
  #isBooting = false;
  #hasFailedBoot = false;

  constructor(row: SandboxRow, parts: DriverParts) {
    this.#row = new CommittedRow(row, parts.store);
    this.#parts = parts;
    this.#log = parts.log.child({ sandbox_id: row.id });
    this.#vm = new SandboxVm(row.id, parts.runner, this.#log);
  }

  get row(): Readonly<SandboxRow> {
    return this.#row.current;
  }

  get record(): SandboxRecord {
    const endsInMs = this.#timer?.endsInMs ?? null;
    const expiresAt = endsInMs === null ? null : Math.round(this.#parts.clock.wallMs() + endsInMs);
    return buildRecord(this.#row.current, { operation: this.#operation, expiresAt });
  }

  /** Unix milliseconds of the last request. */
  get lastActiveAt(): number {
    return this.#timer === undefined
      ? this.#row.current.last_active_at
      : this.#parts.clock.wallMs() - this.#timer.idleForMs;
  }

  /**
   * `creating` with nobody who creates it: the control that did is gone, or could not commit how it went. Whoever asked
   * was then told that the create failed, so it must not run even if that was committed.
   */
  get isInterrupted(): boolean {
    const { status } = this.#row.current;
    return !this.#isBooting && (status === 'creating' || (this.#hasFailedBoot && status === 'running'));
  }

  /** Takes up a sandbox that was running before this process started. */
  adopt(): void {
    if (this.#row.current.status === 'running') this.#startTimer({ graceMs: OUTAGE_GRACE_MS });
  }

  /** Boots the VM of a sandbox that was just inserted; resolves when a first command could run. */
  async boot(access: ImageLogin = {}): Promise<SandboxRecord> {
    const startedAt = this.#parts.clock.monotonicMs();
    this.#isBooting = true;
    try {
      await enterRecordStep('record.ask');
      const { image } = await this.#createVm(access);
      await enterRecordStep('record.start');
      const createMs = Math.round(this.#parts.clock.monotonicMs() - startedAt);
      const record = await this.#inTurn(() => this.#commitStart(image, createMs));
      await enterRecordStep('record.answer');
      return record;
    } catch (error) {
      this.#hasFailedBoot = true;
      throw error;
    } finally {
      this.#isBooting = false;
    }
  }

  /** Runs what talks to the guest. The idle timer waits for it; throws `invalid_state` when the VM does not run. */
  async use<T>(task: () => Promise<T>): Promise<T> {
    this.#require('use');
    const close = this.#timer?.open();
    try {
      return await task();
    } catch (error) {
      if (error instanceof AppError && error.code === 'not_found') throw await this.#explainMissing(error);
      if (isFinal(this.#row.current.status) || this.#operation !== null) throw this.#refusal('use');
      throw error;
    } finally {
      close?.();
    }
  }

  /** Restarts the idle timer, with another timeout if one is given. */
  setTimeout(timeoutS: number | undefined): Promise<SandboxRecord> {
    return this.#inCallersTurn(async () => {
      this.#require('set_timeout');
      if (timeoutS !== undefined && timeoutS !== this.#row.current.timeout_s)
        await this.#row.commit({ timeout_s: timeoutS });
      this.#timer?.restart(this.#row.current.timeout_s * 1000);
      return this.record;
    });
  }

  destroy(reason: StatusReason = 'requested'): Promise<DestroyResult> {
    return this.#inCallersTurn(async () => {
      this.#require('destroy');
      return this.#destroyNow(reason);
    });
  }

  /** The runner says that the VM has ended. */
  handleEnd(end: VmEnd): Promise<void> {
    const { event, reason } = readEndReason(end);
    return this.#inTurn(() => this.#handleEvent(event, reason, end));
  }

  /** The runner does not know the VM: asks for its end, which may wait to be told, else it is lost. */
  handleMissing(): Promise<void> {
    return this.#inTurn(async () => {
      if (isFinal(this.#row.current.status)) return;
      const end = await this.#vm.remove();
      const { event, reason } = end === undefined ? LOST : readEndReason(end);
      await this.#handleEvent(event, reason, end);
    });
  }

  /** Ends a create that nobody finishes. */
  resolveInterrupted(): Promise<void> {
    return this.#inTurn(async () => {
      if (!this.isInterrupted) return;
      const end = await this.#vm.remove();
      const event = this.#row.current.status === 'creating' ? 'start_failed' : 'lost';
      await this.#handleEvent(event, this.#hasFailedBoot ? 'create_failed' : 'control_restarted', end);
    });
  }

  /** The runner has the VM now: billing of a lost one would end here. */
  noteSeen(seen: HostMoment): void {
    this.#row.noteSeen(seen);
  }

  grace(): void {
    this.#timer?.grace(OUTAGE_GRACE_MS);
  }

  /** Stops the timer and nothing else: the sandbox lives on. */
  detach(): void {
    this.#timer?.stop();
  }

  async #createVm({ login }: ImageLogin): Promise<{ image: string }> {
    const { image, vcpus, mem_mib, disk_mib } = this.#row.current;
    try {
      return await this.#vm.create({ image, vcpus, mem_mib, disk_mib, login }, this.#parts.limits);
    } catch (error) {
      await this.#inTurn(() => this.#handleEvent('start_failed', 'create_failed', undefined));
      this.#vm.removeLater();
      throw this.#row.current.status_reason === 'requested' ? destroyedMeanwhile(error) : error;
    }
  }

  async #commitStart(image: string, createMs: number): Promise<SandboxRecord> {
    const transition = findTransition(this.#row.current.status, 'started');
    if (transition.outcome === 'remove_vm') {
      this.#vm.removeLater();
      throw destroyedMeanwhile();
    }
    if (transition.outcome !== 'accept') throw this.#refusal('started');
    const now = momentOf(this.#parts.clock);
    await this.#row.commit({
      status: transition.to,
      image,
      create_ms: createMs,
      last_active_at: now.wallMs,
      last_seen_at: now.wallMs,
      last_seen_boot_ms: now.bootMs,
    });
    this.#startTimer({});
    return this.record;
  }

  async #destroyNow(reason: StatusReason): Promise<DestroyResult> {
    this.#operation = 'destroying';
    try {
      await enterRecordStep('record.remove');
      const end = await this.#vm.remove();
      await this.#end('destroyed', reason, end);
      return buildDestroyResult(this.#row.current);
    } finally {
      this.#operation = null;
    }
  }

  async #handleEvent(event: SandboxEvent, reason: StatusReason, end: VmEnd | undefined): Promise<void> {
    const transition = findTransition(this.#row.current.status, event);
    if (transition.outcome !== 'accept') return;
    if (transition.to !== 'destroyed' && transition.to !== 'failed') return;
    await this.#end(transition.to, reason, end);
  }

  async #end(status: 'destroyed' | 'failed', reason: StatusReason, end: VmEnd | undefined): Promise<void> {
    await enterRecordStep('record.end');
    const now = momentOf(this.#parts.clock);
    await this.#row.commit(buildEnding(this.#row.current, { status, reason, end, now }));
    this.#leave();
    this.#log.info({ status, reason, uptime_ms: this.#row.current.uptime_ms }, 'the sandbox has ended');
  }

  /** Waits its turn, and decides by what is in SQL. */
  #inTurn<T>(task: () => Promise<T>): Promise<T> {
    return this.#queue.run(() => this.#settled(task));
  }

  #inCallersTurn<T>(task: () => Promise<T>): Promise<T> {
    return this.#queue.runBounded(() => this.#settled(task));
  }

  async #settled<T>(task: () => Promise<T>): Promise<T> {
    if (await this.#row.settle()) {
      if (isFinal(this.#row.current.status)) this.#leave();
      else if (this.#row.current.status === 'running' && this.#timer === undefined)
        this.#startTimer({ graceMs: OUTAGE_GRACE_MS });
    }
    return task();
  }

  #leave(): void {
    this.#timer?.stop();
    this.#parts.onFinal(this);
  }

  async #explainMissing(error: AppError): Promise<AppError> {
    await this.handleMissing();
    return isFinal(this.#row.current.status) ? this.#refusal('use') : error;
  }

  #startTimer({ graceMs = 0 }: { graceMs?: number }): void {
    const { clock } = this.#parts;
    const { timeout_s, max_lifetime_s } = this.#row.current;
    const now = momentOf(clock);
    const lifetimeLeftMs =
      max_lifetime_s === null ? undefined : max_lifetime_s * 1000 - findAgeMs(this.#row.current, now);
    this.#timer = new IdleTimer({
      clock,
      timeoutMs: timeout_s * 1000,
      idleForMs: findIdleMs(this.#row.current, now),
      graceMs,
      onExpire: (reason) => void this.#expire(reason),
      ...(lifetimeLeftMs === undefined ? {} : { lifetimeLeftMs }),
    });
  }

  async #expire(reason: ExpiryReason): Promise<void> {
    try {
      await this.#inTurn(async () => {
        // A request may have come while this waited for its turn.
        const current = this.#timer?.expired;
        if (current === undefined || isFinal(this.#row.current.status)) return;
        await this.#destroyNow(current);
      });
    } catch (error) {
      this.#log.warn(
        { err: error, reason },
        'an expired sandbox could not be destroyed; tried again after a grace',
      );
      this.#timer?.grace(OUTAGE_GRACE_MS);
    }
  }

  #require(request: SandboxRequest): void {
    const isBusy = this.#operation !== null && !ALLOWED_DURING[this.#operation].includes(request);
    if (isBusy || findTransition(this.#row.current.status, request).outcome !== 'accept')
      throw this.#refusal(request);
  }

  #refusal(what: string): AppError {
    const state = this.#operation ?? this.#row.current.status;
    const reason = this.#row.current.status_reason === null ? '' : ` (${this.#row.current.status_reason})`;
    return new AppError('invalid_state', `the sandbox is ${state}${reason}; "${what}" is not possible now`, {
      details: { status: this.#row.current.status },
    });
  }
}

function destroyedMeanwhile(cause?: unknown): AppError {
  return new AppError('invalid_state', 'the sandbox was destroyed while it was being created', { cause });
}
