/**
 * Rolls a sandbox back to a snapshot, once for each request. The outcome is known before anything else is done with the
 * sandbox.
 *
 *     commit: the row names rollback and snapshot, it is pending
 *        │
 *        ├─► request to the runner, by that id ─► done     ─► commit: audit entry, usage, no longer pending
 *        │        ▲                           └─► refused  ─► commit: no longer pending; the sandbox runs as before
 *        │        └── no answer, or control killed: repeated by the reconciler or by the next use of the sandbox
 *        └─► the sandbox ends ─► commit of its end, with the rollback if the end reports that it was done
 */
import { AppError, type SandboxRecord } from '@coppice/contract';
import type { Logger } from 'pino';
import type { VmRollback } from '../../../lib/protocol/runner-protocol.ts';
import { traced } from '../../../lib/tracing/tracing.ts';
import type { AuditLog } from '../../audit/audit-log.ts';
import { isUnanswered } from '../../placement/runner-error.ts';
import type { SandboxDisks } from '../../disks/sandbox-disks.ts';
import type { SnapshotRow } from '../../snapshots/snapshot-tables.ts';
import type { LiveSandbox } from './live-sandbox.ts';
import { resolveMissing } from './missing-vm.ts';
import { buildRollbackNote, buildRolledBack, NO_ROLLBACK } from '../record/rollback.ts';
import { captureGone, isNotFound, type SandboxVm } from './sandbox-vm.ts';
import { enterRecordStep } from '../record/steps.ts';
import { invariant } from '../../../lib/invariant.ts';

export interface RollbackParts {
  vm: SandboxVm;
  audit: Pick<AuditLog, 'hasRollback'>;
  disks: Pick<SandboxDisks, 'buildRollback'>;
  /** Called when a rollback is done and committed. */
  onDone: () => void;
  log: Logger;
}

/** The snapshot, and the version of the disk in it. */
export type RollbackTarget = Pick<SnapshotRow, 'id' | 'disk_version'>;

export type RollbackOutcome = 'done' | 'pending' | 'none';

export class SandboxRollback {
  readonly #live: LiveSandbox;
  readonly #parts: RollbackParts;
  #settling: Promise<void> | undefined;

  constructor(live: LiveSandbox, parts: RollbackParts) {
    this.#live = live;
    this.#parts = parts;
  }

  /** Whether there is a rollback whose outcome is unknown. */
  get isPending(): boolean {
    return this.#live.row.rollback_id !== null;
  }

  /**
   * Rolls the sandbox back, once for each `id` (from `newRollbackId()`). Throws `outcome_unknown` if the rollback may
   * have been done; it is finished later.
   */
  rollBack(id: string, snapshot: RollbackTarget): Promise<SandboxRecord> {
    return traced('sandbox.rollback', async () => {
      await this.#live.operate('rollback', () => this.#rollBackNow(id, snapshot));
      return this.#live.record;
    });
  }

  /** Whether a rollback is pending and no operation is under way that could finish it. */
  get isAbandoned(): boolean {
    return this.isPending && this.#live.operations.current === null;
  }

  async #rollBackNow(id: string, snapshot: RollbackTarget): Promise<void> {
    try {
      await this.#live.inTurn(async () => {
        this.#live.require('rollback');
        await this.#live.commit({
          rollback_id: id,
          rollback_snapshot_id: snapshot.id,
          rollback_disk_version: snapshot.disk_version,
        });
      });
      await enterRecordStep('record.rollback');
      await this.#finish({ isFirstTry: true });
    } catch (error) {
      const outcome = await this.find(id).catch(() => 'pending' as const);
      if (outcome === 'pending') throw unknown(error);
      if (outcome === 'none') throw error;
    }
  }

  /** Returns the outcome of a rollback as SQL has it, even if SQL's answer to the commit was lost. */
  async find(id: string): Promise<RollbackOutcome> {
    await this.#live.settle();
    const { row } = this.#live;
    if (row.rollback_id === id) return 'pending';
    return (await this.#parts.audit.hasRollback(row.id, id)) ? 'done' : 'none';
  }

  /** Finishes the pending rollback, once for all that wait for it. Throws `unavailable` if that is not possible now. */
  settle(): Promise<void> {
    this.#settling ??= this.#settleOnce().finally(() => (this.#settling = undefined));
    return this.#settling;
  }

  /** Like {@link find}, but finishes the rollback first if it is pending. */
  async resolve(id: string): Promise<RollbackOutcome> {
    if ((await this.find(id)) === 'pending') await this.settle();
    return this.find(id);
  }

  /** Like {@link settle}. Call only in the queue slot of an operation. */
  async settleInTurn(): Promise<void> {
    if (!this.isPending) return;
    try {
      await this.#live.operations.hold('rolling_back', () => this.#finish({ isFirstTry: false }));
    } catch (error) {
      if (this.isPending) throw unfinished(error);
      this.#parts.log.warn({ err: error }, 'a rollback whose caller is gone was not done');
    }
  }

  #settleOnce(): Promise<void> {
    return this.#live.operations.run(async () => {
      await this.#live.settle();
      await this.settleInTurn();
    }, false);
  }

  /** Finishes the pending rollback. The sandbox is not idle meanwhile. */
  async #finish(how: { isFirstTry: boolean }): Promise<void> {
    const close = this.#live.open();
    try {
      const done = await this.#ask(how);
      await enterRecordStep('record.rolled_back');
      await this.#live.inTurn(async () => {
        this.#live.require('rollback');
        await this.#live.commit(buildRolledBack(this.#live.row, done), buildRollbackNote(done));
      });
      this.#parts.onDone();
    } finally {
      close();
    }
  }

  /** Sends the rollback to the runner. Throws the runner's refusal after removing the rollback from the record. */
  async #ask({ isFirstTry }: { isFirstTry: boolean }): Promise<VmRollback> {
    const { row } = this.#live;
    const { rollback_id, rollback_snapshot_id } = row;
    invariant(rollback_id !== null && rollback_snapshot_id !== null, 'a pending rollback is in the record');
    try {
      const workspace = await this.#parts.disks.buildRollback(row, row.rollback_disk_version);
      return await this.#parts.vm.rollBack({
        rollback_id,
        capture_id: rollback_snapshot_id,
        organization: row.organization_id,
        ...(workspace === undefined ? {} : { workspace }),
      });
    } catch (error) {
      const wasNeverAsked = isFirstTry && error instanceof AppError && error.code === 'unavailable';
      if (isUnanswered(error) && !wasNeverAsked) throw error;
      throw await this.#forget(error);
    }
  }

  /** Clears the pending rollback, which was not done and will not be. Returns the error for its caller. */
  async #forget(refusal: unknown): Promise<unknown> {
    const { vm } = this.#parts;
    // Distinguishes a missing VM from a missing capture.
    const hasVm = !isNotFound(refusal) || (await vm.isThere());
    await this.#live.inTurn(async () => {
      if (!hasVm) await resolveMissing(this.#live, vm);
      if (this.#live.row.status === 'running') await this.#live.commit(NO_ROLLBACK);
    });
    if (this.#live.row.status !== 'running') return this.#live.refusal('rollback');
    return isNotFound(refusal) ? captureGone(refusal) : refusal;
  }
}

/** Builds the error for a use of the sandbox: nothing of the use was begun. */
function unfinished(cause: unknown): AppError {
  const message = 'a rollback of the sandbox cannot be finished now; try again';
  return new AppError('unavailable', message, { cause });
}

function unknown(cause: unknown): AppError {
  return new AppError(
    'outcome_unknown',
    'it is unknown whether the rollback was done; the service finishes it later, and the audit log shows the outcome',
    { cause },
  );
}
