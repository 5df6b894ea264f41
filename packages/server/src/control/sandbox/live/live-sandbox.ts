/**
 * State of a live sandbox in this process: its row as SQL has it, the commit lock that guards the row, the queue of
 * operations, and the timer that ends it. Operations and commits wait separately:
 *
 *     operations   fork ───────────────►│ hibernate ──────►│        as long as they take, one at a time
 *     commits       │ PATCH │   │ ended │   │   │   │               short: no commit waits behind an operation
 *
 * If the answer to a commit is lost, it is unknown whether the commit was made. The row is then in doubt, and is read
 * again before the next decision that depends on it.
 */
import {
  type AppError,
  findTransition,
  isFinal,
  type SandboxOperation,
  type SandboxRecord,
  type SandboxRequest,
  type SandboxState,
  type StatusReason,
} from '@coppice/contract';
import type { Logger } from 'pino';
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { VmEnd } from '../../../lib/protocol/runner-protocol.ts';
import { traced, traceStages } from '../../../lib/tracing/tracing.ts';
import type { AuditNote } from '../../audit/audit-chain.ts';
import type { AuditLog } from '../../audit/audit-log.ts';
import type { SandboxDisks } from '../../disks/sandbox-disks.ts';
import type { EgressNotes } from '../../egress/egress-notes.ts';
import type { SandboxRow, SandboxUpdate } from '../record/sandbox-tables.ts';
import { ElsewhereError } from '../../placement/elsewhere.ts';
import type { RunnerPresence } from '../../runners/runner-presence.ts';
import type { Clock } from '../../time/clock.ts';
import { buildEnding, buildEndNotes, type EndEvent } from '../record/ending.ts';
import { IdleTimer, type ExpiryReason } from './idle-timer.ts';
import { findIdleMs, keepLastSeen } from '../../time/lifetime.ts';
import { OperationTurns } from './operation-turns.ts';
import { RecordedUse, type Use } from './recorded-use.ts';
import { findTimeLimits } from './time-limits.ts';
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
  disks: Pick<SandboxDisks, 'findDetaching' | 'noteState'>;
  clock: Clock;
  presence: Pick<RunnerPresence, 'now'>;
  log: Logger;
  onExpire: (reason: ExpiryReason) => void;
  /** Resolves a pending rollback. Called in the queue slot of an operation, before the operation. */
  settleRollback: () => Promise<void>;
  /** Called with the row when its state, as committed, has changed. */
  onState: (row: Readonly<SandboxRow>) => void;
  /** Called with the id when the VM is gone, before the end is committed. */
  onEnding: (id: string) => Promise<void>;
  /** Called when the end of the sandbox is committed. */
  onFinal: () => void;
  /** Whether the runner is the one of this driver. */
  isHere: (runnerId: string) => boolean;
  /** Called when the sandbox belongs to another runner: this driver is of no use any more. */
  onGone: () => void;
}

export class LiveSandbox {
  readonly #parts: LiveSandboxParts;
  #row: SandboxRow;
  #isInDoubt = false;
  #isDetached = false;
  readonly #recorded: RecordedUse;
  readonly #commits = new SerialQueue();
  readonly operations = new OperationTurns();
  #timer: IdleTimer | undefined;
  #removal: StatusReason | undefined;
  readonly #begun = Promise.withResolvers<void>();
  /** The state for which the timer was started. */
  #timedState: SandboxState | undefined;

  constructor(row: SandboxRow, parts: LiveSandboxParts) {
    this.#row = row;
    this.#recorded = new RecordedUse(row);
    this.#parts = parts;
  }

  get row(): Readonly<SandboxRow> {
    return this.#row;
  }

  get record(): SandboxRecord {
    const expiresAt = this.#timer?.endsAtMs ?? null;
    const operation = this.operations.current ?? (this.row.rollback_id === null ? null : 'rolling_back');
    const detaching = this.#parts.disks.findDetaching(this.row.id);
    return buildRecord(this.row, { operation, expiresAt, detaching });
  }

  /** Unix milliseconds of the last request. */
  get lastActiveAt(): number {
    return this.#timer === undefined
      ? this.row.last_active_at
      : this.#parts.clock.wallMs() - this.#timer.idleForMs;
  }

  /** Whether requests are open. */
  get isInUse(): boolean {
    return this.#timer?.isOpen ?? false;
  }

  /** For how long the oldest open request has been open; 0 without any. */
  get inUseForMs(): number {
    return this.#timer?.openForMs ?? 0;
  }

  get now(): HostMoment {
    return this.#parts.presence.now();
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

  /**
   * Commits a change and, if there are `notes`, their audit entries: all or none. Call only while holding the commit
   * lock.
   */
  commit(change: SandboxUpdate, notes?: AuditNote | readonly AuditNote[]): Promise<void> {
    return traced('sandbox.commit', () => this.#commit(change, notes));
  }

  #commit(change: SandboxUpdate, notes?: AuditNote | readonly AuditNote[]): Promise<void> {
    const { store, audit } = this.#parts;
    return this.commitBy((row) =>
      notes === undefined
        ? store.update(row, change)
        : audit.commit(row.id, notes, (transaction) => store.within(transaction).update(row, change)),
    );
  }

  /** Commits a change that `write` makes together with others. Call only while holding the commit lock. */
  async commitBy(write: (row: SandboxRow) => Promise<SandboxRow>): Promise<void> {
    this.#isInDoubt = true;
    const before = this.#row;
    const written = await write(before);
    this.#recorded.noteCommit(written);
    this.#row = keepLastSeen(written, before);
    this.#isInDoubt = false;
    this.#followState(0);
  }

  /** Commits an end, unless the state of the sandbox ignores the event. Call only while holding the commit lock. */
  async end(event: EndEvent, told: StatusReason, end?: VmEnd): Promise<void> {
    if (findTransition(this.row.status, event).outcome === 'ignore') return;
    await enterRecordStep('record.end');
    await this.#parts.audit.processes.closed(this.row.id);
    await this.#parts.onEnding(this.row.id);
    if (end !== undefined) await this.#parts.notes.ended(this.row.id);
    const reason = told === 'requested' ? (this.#removal ?? told) : told;
    const change = buildEnding(this.row, { event, reason, end, now: this.now });
    await this.commit(change, buildEndNotes(this.row, change, { reason, end }));
    const { status, uptime_ms } = this.row;
    this.#parts.log.info({ status, reason, uptime_ms }, 'the sandbox has ended');
  }

  /**
   * Notes why the VM is about to be removed. If the end is not committed then, the runner reports it later without a
   * reason, and this one is recorded.
   */
  noteRemoval(reason: StatusReason): void {
    this.#removal = reason;
  }

  /**
   * Carries a caller's request out in its queue slot. Throws `invalid_state` if the contract's tables refuse it,
   * `rate_limited` if too many operations wait.
   */
  async operate<T>(request: SandboxRequest, work: () => Promise<T>): Promise<T> {
    if (!this.operations.admits(request)) throw this.refusal(request);
    const queued = traceStages('sandbox');
    queued?.enter('queue');
    return this.operations.run(async () => {
      queued?.end();
      await this.settle();
      if (request !== 'destroy') await this.#parts.settleRollback();
      return this.carryOut(request, work);
    }, true);
  }

  /** Does the work of a request, as the operation that the table names, if any. Call only in a queue slot. */
  async carryOut<T>(request: SandboxRequest, work: () => Promise<T>): Promise<T> {
    const operation = this.require(request);
    return operation === null ? work() : this.operations.hold(operation, work);
  }

  /** Reads the row again if it is in doubt. Resolves when the row is what SQL has. */
  settle(): Promise<void> {
    return this.inTurn(async () => undefined);
  }

  /** Returns the operation that the request begins; null if it is done at once. Throws `invalid_state`. */
  require(request: SandboxRequest, caller: Caller = {}): SandboxOperation | null {
    if (this.#isDetached && this.row.runner_id !== null) throw new ElsewhereError(this.row.runner_id);
    const transition = findTransition(this.row.status, request);
    if (transition.outcome !== 'accept') throw this.refusal(request, caller);
    return transition.operation;
  }

  refusal(request: SandboxRequest, caller: Caller = {}): AppError {
    const { status, status_reason } = this.row;
    return buildRefusal(request, { status, status_reason, operation: this.operations.current, ...caller });
  }

  /** Notes a request: the sandbox does not end for idleness until the returned function is called. */
  open(): () => void {
    return this.#timer?.open() ?? (() => undefined);
  }

  /** Restarts the idle timer, with the limits that the row has now. */
  restartTimer(): void {
    this.#timer?.restart(findTimeLimits(this.row, this.now));
  }

  /** How it is used now, unless SQL has that already. */
  get unrecordedUse(): Use | undefined {
    const { lastActiveAt, isInUse, operations } = this;
    const use = { lastActiveAt, isInUse, operation: operations.current };
    return this.#recorded.differs(use) ? use : undefined;
  }

  noteRecorded(use: Use): void {
    this.#recorded.note(use);
  }

  noteSeen(seen: HostMoment): void {
    const { bootId: boot_id, wallMs: last_seen_at, bootMs: last_seen_boot_ms } = seen;
    // A heartbeat may be older than a resume.
    this.#row = keepLastSeen(this.#row, { boot_id, last_seen_at, last_seen_boot_ms });
  }

  grace(graceMs = OUTAGE_GRACE_MS): void {
    this.#timer?.grace(graceMs);
  }

  /** Stops only the timer: the sandbox keeps running. From now on another control does what is requested. */
  detach(): void {
    this.#isDetached = true;
    this.#timer?.stop();
  }

  async #settled<T>(task: () => Promise<T>): Promise<T> {
    if (this.#isInDoubt) {
      this.#row = keepLastSeen(await this.#parts.store.get(this.#row.id), this.#row);
      this.#isInDoubt = false;
      this.#followState(OUTAGE_GRACE_MS);
    }
    this.#requireHere();
    return task();
  }

  /** Throws an {@link ElsewhereError} if the sandbox has been moved to a runner that is not the one of this driver. */
  #requireHere(): void {
    const { runner_id: at } = this.#row;
    if (this.isFinal || at === null || this.#parts.isHere(at)) return;
    this.#timer?.stop();
    this.#parts.onGone();
    throw new ElsewhereError(at);
  }

  #followState(graceMs: number): void {
    const { status } = this.row;
    if (status === this.#timedState) return;
    this.#timer?.stop();
    this.#timedState = status;
    this.#parts.disks.noteState(this.row);
    this.#parts.onState(this.row);
    if (status !== 'creating') this.#begun.resolve();
    if (this.isFinal) this.#parts.onFinal();
    else if (status !== 'creating') this.#timer = this.#startTimer(graceMs);
  }

  #startTimer(graceMs: number): IdleTimer {
    const { clock, onExpire } = this.#parts;
    const { now, row } = this;
    const limits = findTimeLimits(row, now);
    return new IdleTimer({ clock, ...limits, idleForMs: findIdleMs(row, now), graceMs, onExpire });
  }
}
