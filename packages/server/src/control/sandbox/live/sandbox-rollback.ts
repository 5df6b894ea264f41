/**
 * How a sandbox is put back to a snapshot: once for each request, and whether it was done is known before anything else is
 * done with the sandbox.
 *
 *     commit: the row names rollback and snapshot, it is pending
 *        │
 *        ├─► the runner is asked by that id ─► done     ─► commit: audit entry, usage, no longer pending
 *        │        ▲                        └─► refused  ─► commit: no longer pending; the sandbox runs on as it was
 *        │        └── no answer, or control killed: asked again, by the reconciler or by whoever would use the sandbox
 *        └─► the sandbox ends ─► commit of its end, with the rollback if the end tells that it was done
 */
import { AppError, type SandboxRecord } from '@coppice/contract';
import type { Logger } from 'pino';
import type { VmRollback } from '../../../lib/protocol/runner-protocol.ts';
import type { AuditLog } from '../../audit/audit-log.ts';
import { isUnanswered } from '../../placement/runner-error.ts';
import type { LiveSandbox } from './live-sandbox.ts';
import { resolveMissing } from './missing-vm.ts';
import { buildRollbackNote, buildRolledBack, NO_ROLLBACK } from '../record/rollback.ts';
import { captureGone, isNotFound, type SandboxVm } from './sandbox-vm.ts';
import { enterRecordStep } from '../record/steps.ts';

export interface RollbackParts {
  vm: SandboxVm;
  audit: Pick<AuditLog, 'hasRollback'>;
  log: Logger;
}

export type RollbackOutcome = 'done' | 'pending' | 'none';

export class SandboxRollback {
  readonly #live: LiveSandbox;
  readonly #parts: RollbackParts;
  #settling: Promise<void> | undefined;

  constructor(live: LiveSandbox, parts: RollbackParts) {
    this.#live = live;
    this.#parts = parts;
  }

  /** Whether it was done is to be found out. */
  get isPending(): boolean {
    return this.#live.row.rollback_id !== null;
  }

  /**
   * Rolls the sandbox back, once for each `id` (from `newRollbackId()`). Throws `outcome_unknown` when the rollback may have
   * been done; it is finished later.
   */
  async rollBack(id: string, snapshotId: string): Promise<SandboxRecord> {
    await this.#live.operate('rolling_back', () => this.#rollBackNow(id, snapshotId));
    return this.#live.record;
  }

  /** A rollback is to be finished, and no operation is under way. */
  get isAbandoned(): boolean {
    return this.isPending && this.#live.operations.current === null;
  }

  async #rollBackNow(id: string, snapshotId: string): Promise<void> {
    try {
      await this.#live.inTurn(async () => {
        this.#live.require('rollback');
        await this.#live.commit({ rollback_id: id, rollback_snapshot_id: snapshotId });
      });
      await enterRecordStep('record.rollback');
      await this.#finish({ isFirstTry: true });
    } catch (error) {
      const outcome = await this.find(id).catch(() => 'pending' as const);
      if (outcome === 'pending') throw unknown(error);
      if (outcome === 'none') throw error;
    }
  }

  /** What has become of it: an answer that was lost on the way to SQL or from there is seen here. */
  async find(id: string): Promise<RollbackOutcome> {
    await this.#live.settle();
    const { row } = this.#live;
    if (row.rollback_id === id) return 'pending';
    return (await this.#parts.audit.hasRollback(row.id, id)) ? 'done' : 'none';
  }

  /** Finishes the one that is pending, once for all who wait for it. Throws `unavailable` when that is not possible now. */
  settle(): Promise<void> {
    this.#settling ??= this.#settleOnce().finally(() => (this.#settling = undefined));
    return this.#settling;
  }

  /** As {@link find}, after it was finished if it was pending. */
  async resolve(id: string): Promise<RollbackOutcome> {
    if ((await this.find(id)) === 'pending') await this.settle();
    return this.find(id);
  }

  /** As {@link settle}; only in an operation's turn. */
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

  /** The sandbox is not idle meanwhile. */
  async #finish(how: { isFirstTry: boolean }): Promise<void> {
    const close = this.#live.open();
    try {
      const done = await this.#ask(how);
      await enterRecordStep('record.rolled_back');
      await this.#live.inTurn(async () => {
        this.#live.require('rollback');
        await this.#live.commit(buildRolledBack(this.#live.row, done), buildRollbackNote(done));
      });
    } finally {
      close();
    }
  }

  /** Throws what the runner refuses it with, after the record has forgotten it. */
  async #ask({ isFirstTry }: { isFirstTry: boolean }): Promise<VmRollback> {
    const { rollback_id, rollback_snapshot_id } = this.#live.row;
    if (rollback_id === null || rollback_snapshot_id === null)
      throw new AppError('internal', 'a rollback that no record names');
    try {
      return await this.#parts.vm.rollBack({ rollback_id, capture_id: rollback_snapshot_id });
    } catch (error) {
      const wasNeverAsked = isFirstTry && error instanceof AppError && error.code === 'unavailable';
      if (isUnanswered(error) && !wasNeverAsked) throw error;
      throw await this.#forget(error);
    }
  }

  /** It was not done, and will not be. Returns what its caller is told. */
  async #forget(refusal: unknown): Promise<unknown> {
    const { vm } = this.#parts;
    // Tells a VM that is gone from a capture that is.
    const hasVm = !isNotFound(refusal) || (await vm.isThere());
    await this.#live.inTurn(async () => {
      if (!hasVm) await resolveMissing(this.#live, vm);
      if (this.#live.row.status === 'running') await this.#live.commit(NO_ROLLBACK);
    });
    if (this.#live.row.status !== 'running') return this.#live.refusal('rollback');
    return isNotFound(refusal) ? captureGone(refusal) : refusal;
  }
}

/** Told to whoever would use the sandbox: nothing of that was begun. */
function unfinished(cause: unknown): AppError {
  const message = 'a rollback of the sandbox cannot be finished now; try again';
  return new AppError('unavailable', message, { cause });
}

function unknown(cause: unknown): AppError {
  return new AppError(
    'outcome_unknown',
    'whether the sandbox was rolled back is not known yet; the service finishes it when it can, and the audit log tells',
    { cause },
  );
}
