/**
 * State of a live sandbox in this process: its committed row, the commit lock that guards the row, the queue of
 * operations, and the timer that ends it. Operations and commits wait separately:
 *
 *     operations   fork ───────────────►│ hibernate ──────►│        as long as they take, one at a time
 *     commits       │ PATCH │   │ ended │   │   │   │               short: no commit waits behind an operation
 */
import {
  type AppError,
  findTransition,
  isFinal,
  REQUEST_OF,
  type SandboxEvent,
  type SandboxOperation,
  type SandboxRecord,
  type SandboxRequest,
  type SandboxState,
  type StatusReason,
} from '@coppice/contract';
import type { Logger } from 'pino';
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { VmEnd } from '../../../lib/protocol/runner-protocol.ts';
import type { AuditNote } from '../../audit/audit-chain.ts';
import type { AuditLog } from '../../audit/audit-log.ts';
import type { EgressNotes } from '../../egress/egress-notes.ts';
import type { SandboxRow, SandboxUpdate } from '../record/sandbox-tables.ts';
import { momentOf, type Clock } from '../../time/clock.ts';
import { CommittedRow } from '../record/committed-row.ts';
import { buildEnding, buildEndNotes, type Ending } from '../record/ending.ts';
import { IdleTimer, type ExpiryReason } from './idle-timer.ts';
import { findAgeMs, findIdleMs } from '../../time/lifetime.ts';
import { OperationTurns } from './operation-turns.ts';
import { buildRecord } from '../record/record.ts';
import { buildRefusal, type Caller } from '../record/refusal.ts';
import type { SandboxStore } from '../record/sandbox-store.ts';
import { SerialQueue } from '../../../lib/waiting/serial-queue.ts';
import { enterRecordStep } from '../record/steps.ts';

/** Grace after an outage of the service, so that callers can come back before their sandboxes end. */
const OUTAGE_GRACE_MS = 60_000;

export interface LiveSandboxParts {
  store: SandboxStore;
  audit: AuditLog;
  notes: Pick<EgressNotes, 'ended'>;
  clock: Clock;
  log: Logger;
  onExpire: (reason: ExpiryReason) => void;
  /** Resolves a pending rollback. Called in the queue slot of an operation, before the operation. */
  settleRollback: () => Promise<void>;
  /** Called when the end of the sandbox is committed. */
  onFinal: () => void;
}

export class LiveSandbox {
  readonly #parts: LiveSandboxParts;
  readonly #row: CommittedRow;
  readonly #commits = new SerialQueue();
  readonly operations = new OperationTurns();
  #timer: IdleTimer | undefined;
  #removal: StatusReason | undefined;
  readonly #begun = Promise.withResolvers<void>();
  /** The state for which the timer was started. */
  #timedState: SandboxState | undefined;

  constructor(row: SandboxRow, parts: LiveSandboxParts) {
    this.#row = new CommittedRow(row, parts);
    this.#parts = parts;
  }

  get row(): Readonly<SandboxRow> {
    return this.#row.current;
  }

  get record(): SandboxRecord {
    const endsInMs = this.#timer?.endsInMs ?? null;
    const expiresAt = endsInMs === null ? null : Math.round(this.#parts.clock.wallMs() + endsInMs);
    const operation = this.operations.current ?? (this.row.rollback_id === null ? null : 'rolling_back');
    return buildRecord(this.row, { operation, expiresAt });
  }

  /** Unix milliseconds of the last request. */
  get lastActiveAt(): number {
    return this.#timer === undefined
      ? this.row.last_active_at
      : this.#parts.clock.wallMs() - this.#timer.idleForMs;
  }

  get now(): HostMoment {
    return momentOf(this.#parts.clock);
  }

  /** Resolves when it is no longer being created, whatever the outcome. */
  get begun(): Promise<void> {
    return this.#begun.promise;
  }

  get isFinal(): boolean {
    return isFinal(this.row.status);
  }

  /** Why it should end now, if it should. */
  get expired(): ExpiryReason | undefined {
    return this.isFinal ? undefined : this.#timer?.expired;
  }

  /** Adopts a sandbox that was live before this process started. */
  adopt(): void {
    this.#followState(OUTAGE_GRACE_MS);
  }

  /** Runs the task while holding the commit lock, on the row as SQL has it. */
  inTurn<T>(task: () => Promise<T>): Promise<T> {
    return this.#commits.run(() => this.#settled(task));
  }

  /** Like {@link inTurn}, for a caller. Throws `rate_limited` if too many tasks wait. */
  inCallersTurn<T>(task: () => Promise<T>): Promise<T> {
    return this.#commits.runBounded(() => this.#settled(task));
  }

  /** Commits a change, together with audit entries for `notes`. Call only while holding the commit lock. */
  async commit(change: SandboxUpdate, notes?: AuditNote | readonly AuditNote[]): Promise<void> {
    await this.#row.commit(change, notes);
    this.#followState(0);
  }

  /**
   * Commits an end that was reported or detected. Any other event changes nothing here. Call only while holding the
   * commit lock.
   */
  async handleEvent(event: SandboxEvent, reason: StatusReason, end?: VmEnd): Promise<void> {
    const transition = findTransition(this.row.status, event);
    if (transition.outcome !== 'accept') return;
    if (transition.to === 'destroyed' || transition.to === 'failed')
      await this.end({ status: transition.to, reason: this.#whyEnded(reason), end });
  }

  /**
   * Notes why the VM is about to be removed. If the end is not committed then, the runner reports it later without a
   * reason, and this one is recorded.
   */
  noteRemoval(reason: StatusReason): void {
    this.#removal = reason;
  }

  #whyEnded(told: StatusReason): StatusReason {
    return told === 'requested' ? (this.#removal ?? told) : told;
  }

  /** Commits the end. Call only while holding the commit lock. */
  async end(ending: Omit<Ending, 'now'>): Promise<void> {
    await enterRecordStep('record.end');
    await this.#parts.audit.processes.closed(this.row.id);
    if (ending.end !== undefined) await this.#parts.notes.ended(this.row.id);
    const { status, reason } = ending;
    const change = buildEnding(this.row, { ...ending, now: this.now });
    await this.commit(change, buildEndNotes(this.row, change, ending));
    this.#parts.log.info({ status, reason, uptime_ms: this.row.uptime_ms }, 'the sandbox has ended');
  }

  /**
   * Runs a caller's operation in its queue slot. Throws `invalid_state` if the contract's tables refuse it,
   * `rate_limited` if too many operations wait.
   */
  operate<T>(operation: SandboxOperation, work: () => Promise<T>): Promise<T> {
    return this.operateBriefly(REQUEST_OF[operation], () => this.operations.hold(operation, work));
  }

  /** Like {@link operate}, for short work that does not show in the record. */
  async operateBriefly<T>(request: SandboxRequest, work: () => Promise<T>): Promise<T> {
    if (!this.operations.admits(request)) throw this.refusal(request);
    return this.operations.run(async () => {
      await this.settle();
      if (request !== 'destroy') await this.#parts.settleRollback();
      this.require(request);
      return work();
    }, true);
  }

  /** Reads the row again if it is in doubt. Resolves when the row is what SQL has. */
  settle(): Promise<void> {
    return this.inTurn(async () => undefined);
  }

  require(request: SandboxRequest, caller: Caller = {}): void {
    if (findTransition(this.row.status, request).outcome !== 'accept') throw this.refusal(request, caller);
  }

  refusal(request: SandboxRequest, caller: Caller = {}): AppError {
    const { status, status_reason } = this.row;
    return buildRefusal(request, { status, status_reason, operation: this.operations.current, ...caller });
  }

  /** Notes a request: the sandbox does not end for idleness until the returned function is called. */
  open(): () => void {
    return this.#timer?.open() ?? (() => undefined);
  }

  restartTimer(): void {
    this.#timer?.restart(this.#idleTimeoutMs);
  }

  noteSeen(seen: HostMoment): void {
    this.#row.noteSeen(seen);
  }

  grace(): void {
    this.#timer?.grace(OUTAGE_GRACE_MS);
  }

  /** Stops only the timer: the sandbox keeps running. */
  detach(): void {
    this.#timer?.stop();
  }

  /** 0 unless the sandbox runs: a hibernated sandbox has no VM that could be idle. */
  get #idleTimeoutMs(): number {
    return this.row.status === 'running' ? this.row.timeout_s * 1000 : 0;
  }

  async #settled<T>(task: () => Promise<T>): Promise<T> {
    if (await this.#row.settle()) this.#followState(OUTAGE_GRACE_MS);
    return task();
  }

  #followState(graceMs: number): void {
    const { status } = this.row;
    if (status === this.#timedState) return;
    this.#timer?.stop();
    this.#timedState = status;
    if (status !== 'creating') this.#begun.resolve();
    if (this.isFinal) this.#parts.onFinal();
    else if (status !== 'creating') this.#timer = this.#startTimer(graceMs);
  }

  #startTimer(graceMs: number): IdleTimer {
    const { clock, onExpire } = this.#parts;
    const { max_lifetime_s } = this.row;
    const lifetimeLeftMs =
      max_lifetime_s === null ? undefined : max_lifetime_s * 1000 - findAgeMs(this.row, this.now);
    return new IdleTimer({
      clock,
      timeoutMs: this.#idleTimeoutMs,
      idleForMs: findIdleMs(this.row, this.now),
      graceMs,
      onExpire,
      ...(lifetimeLeftMs === undefined ? {} : { lifetimeLeftMs }),
    });
  }
}
