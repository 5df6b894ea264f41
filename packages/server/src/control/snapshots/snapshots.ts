/**
 * Snapshots of each organization. A snapshot is a row in SQL and a capture at the runner, made and removed in this
 * order, so that a capture is never without a row and a row that is `ready` never without a capture:
 *
 *     row `creating` ─► capture ─► row `ready`   …   row `deleting` ─► capture removed ─► row removed
 *
 * The reconciler (capture-keeper.ts) removes a row that is `creating` or `deleting` without an operation, with its
 * capture. It also deletes snapshots that have expired, unless a sandbox is just restored from them or rolled back to
 * them. No caller sees an expired snapshot.
 */
import {
  AppError,
  MAX_SNAPSHOT_AHEAD_MS,
  type CreateSnapshotRequest,
  type PatchSnapshotRequest,
  type SnapshotRecord,
} from '@coppice/contract';
import type { Logger } from 'pino';
import type { Reach } from '../accounts/organizations/reach.ts';
import type { CaptureInfo } from '../../lib/protocol/runner-protocol.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import type { LimitsOf } from '../limits/organization-limits.ts';
import type { SandboxRow } from '../sandbox/record/sandbox-tables.ts';
import type { SnapshotRow, WholeSnapshotRow } from './snapshot-tables.ts';
import { takenBack } from '../placement/runner-error.ts';
import type { Runners } from '../runners/runners.ts';
import type { Clock } from '../time/clock.ts';
import { checkExpiry } from '../time/expiry.ts';
import type { Environments } from '../sandbox/environment/environments.ts';
import type { Subject } from '../sandbox/idempotency.ts';
import type { SandboxDriver } from '../sandbox/live/sandbox-driver.ts';
import { traced } from '../../lib/tracing/tracing.ts';
import { SerialQueue } from '../../lib/waiting/serial-queue.ts';
import { enterRecordStep } from '../sandbox/record/steps.ts';
import { buildSnapshotRecord, buildSnapshotRow, readSavedDisk } from './snapshot-record.ts';
import type { SnapshotFilter, SnapshotPlace, SnapshotStore } from './snapshot-store.ts';

export interface SnapshotsParts {
  store: SnapshotStore;
  runners: Pick<Runners, 'get'>;
  audit: AuditLog;
  environments: Environments;
  clock: Clock;
  limitsOf: LimitsOf;
  log: Logger;
}

export interface NewSnapshot {
  /** From `newSnapshotId()`. */
  id: string;
  driver: SandboxDriver;
  request: CreateSnapshotRequest;
}

export class Snapshots {
  readonly #parts: SnapshotsParts;
  readonly #store: SnapshotStore;
  /** Snapshots that this process is making or removing. */
  readonly #underWay = new Set<string>();
  /** Snapshots that sandboxes are being made of, and by how many requests. */
  readonly #uses = new Map<string, number>();
  /** Completes one snapshot after the other, so that two cannot use up the same rest of a quota. */
  readonly #completions = new SerialQueue();

  constructor(parts: SnapshotsParts) {
    this.#parts = parts;
    this.#store = parts.store;
  }

  /** Makes a snapshot, and resolves when it is safe on disk. The sandbox pauses for a moment and keeps running. */
  create(snapshot: NewSnapshot): Promise<SnapshotRecord> {
    return traced('sandbox.snapshot', () => this.#create(snapshot));
  }

  async #create({ id, driver, request }: NewSnapshot): Promise<SnapshotRecord> {
    await using _ = await driver.copies.begin('snapshot');
    return await this.#whileUnderWay(id, async () => {
      await this.#checkQuota(driver.row.organization_id, 0);
      const now = this.#parts.clock.wallMs();
      const sealedEnv = await this.#copyEnvironment(driver.row, id);
      await this.#store.insert(buildSnapshotRow(id, driver.row, { request, now, sealedEnv }));
      try {
        await enterRecordStep('record.snapshot');
        const capture = await driver.copies.snapshot(id);
        await enterRecordStep('record.saved');
        return buildSnapshotRecord(await this.#completions.run(() => this.#complete(driver.row, capture)));
      } catch (error) {
        // Also if it was completed and the answer was lost: the caller gets an error.
        await this.#eraseOrLeave(id, ['creating', 'ready']);
        throw takenBack(error, 'the snapshot');
      }
    });
  }

  /** Throws `not_found` when there is no such snapshot within reach. */
  async get(reach: Reach, id: string): Promise<SnapshotRecord> {
    return buildSnapshotRecord(await this.#get(reach, id));
  }

  /**
   * Does work with a snapshot, which does not expire before the work is done. Throws `not_found` when there is no such
   * snapshot within reach.
   */
  async use<T>(reach: Reach, id: string, work: (snapshot: WholeSnapshotRow) => Promise<T>): Promise<T> {
    this.#uses.set(id, (this.#uses.get(id) ?? 0) + 1);
    try {
      return await work(this.#check(id, await this.#store.findWhole(reach, id)));
    } finally {
      const others = (this.#uses.get(id) ?? 1) - 1;
      if (others === 0) this.#uses.delete(id);
      else this.#uses.set(id, others);
    }
  }

  /** Changes the given fields. Throws `not_found` as {@link get}, and `invalid_request` for an expiry that has passed. */
  async patch(reach: Reach, id: string, { name, expires_at }: PatchSnapshotRequest): Promise<SnapshotRecord> {
    const record = await this.get(reach, id);
    if (name === undefined && expires_at === undefined) return record;
    const limits = { wallMs: this.#parts.clock.wallMs(), maxAheadMs: MAX_SNAPSHOT_AHEAD_MS };
    const row = await this.#store.change(id, {
      ...(name === undefined ? {} : { name }),
      ...(expires_at === undefined ? {} : { expires_at: checkExpiry(expires_at, limits) }),
    });
    return row === undefined ? this.get(reach, id) : buildSnapshotRecord(row);
  }

  async list(
    filter: Omit<SnapshotFilter, 'now'>,
  ): Promise<{ records: SnapshotRecord[]; createdAt: number[] }> {
    const rows = await this.#store.list({ ...filter, now: this.#parts.clock.wallMs() });
    return { records: rows.map(buildSnapshotRecord), createdAt: rows.map((row) => row.created_at) };
  }

  /** Returns the state of a snapshot, for its Idempotency-Key. */
  async findSubject(reach: Reach, id: string): Promise<Subject<SnapshotRecord>> {
    const row = await this.#store.find(reach, id);
    if (row === undefined) return 'nothing';
    return row.status === 'ready' ? { status: 201, body: buildSnapshotRecord(row) } : 'begun';
  }

  /** Deletes a snapshot. No caller sees it when this resolves, although its space may be freed later. */
  delete(reach: Reach, id: string): Promise<void> {
    return this.#whileUnderWay(id, async () => {
      await this.#get(reach, id);
      if ((await this.#store.condemn(id, ['ready'])) !== undefined)
        await this.#eraseOrLeave(id, ['deleting']);
      else await this.#get(reach, id);
    });
  }

  /** Deletes snapshots at a runner that have expired. Those in use are deleted by a later call. */
  async deleteExpired(at: SnapshotPlace): Promise<void> {
    for (const id of await this.#store.listExpired(at, this.#parts.clock.wallMs())) {
      if (this.#underWay.has(id) || this.#uses.has(id)) continue;
      await this.#whileUnderWay(id, async () => {
        if (await this.#store.condemnExpired(id, this.#parts.clock.wallMs()))
          await this.#eraseOrLeave(id, ['deleting']);
      });
    }
  }

  /** Removes snapshots at a runner that an earlier process left unfinished, or that could not be removed while they were in use. */
  async resolveInterrupted(at: SnapshotPlace): Promise<void> {
    for (const id of await this.#store.listUnsettled(at)) {
      if (this.#underWay.has(id)) continue;
      await this.#whileUnderWay(id, () => this.#eraseOrLeave(id, ['creating', 'deleting']));
    }
  }

  async #get(reach: Reach, id: string): Promise<SnapshotRow> {
    return this.#check(id, await this.#store.find(reach, id));
  }

  /** Throws `not_found` if callers do not see the snapshot. */
  #check<T extends SnapshotRow>(id: string, row: T | undefined): T {
    const hasExpired = (row?.expires_at ?? Infinity) <= this.#parts.clock.wallMs();
    if (row?.status === 'ready' && !hasExpired) return row;
    throw new AppError('not_found', `there is no snapshot ${JSON.stringify(id.slice(0, 64))}`);
  }

  async #copyEnvironment(sandbox: Readonly<SandboxRow>, id: string): Promise<Buffer | null> {
    const { environments } = this.#parts;
    return environments.seal({ ...sandbox, id }, await environments.read(sandbox));
  }

  async #complete(sandbox: Readonly<SandboxRow>, capture: CaptureInfo): Promise<SnapshotRow> {
    await this.#checkQuota(sandbox.organization_id, capture.size_bytes);
    const saved = {
      sizeBytes: capture.size_bytes,
      boundTo: capture.bound_to,
      disk: readSavedDisk(capture),
    };
    const note = { event: 'sandbox.snapshot', data: { snapshot_id: capture.id } } as const;
    return this.#parts.audit.commit(sandbox.id, note, async (transaction) => {
      const row = await this.#store.within(transaction).complete(capture.id, saved);
      if (row === undefined) throw new AppError('internal', 'the record of a snapshot is gone');
      return row;
    });
  }

  async #checkQuota(organizationId: string, neededBytes: number): Promise<void> {
    const limit = this.#parts.limitsOf(organizationId).snapshotBytes;
    const used = await this.#store.sumBytes(organizationId, this.#parts.clock.wallMs());
    if (used + neededBytes <= limit && used < limit) return;
    const needed = neededBytes === 0 ? '' : `, ${neededBytes} more are needed`;
    throw new AppError(
      'capacity',
      `the organization's snapshots take ${used} bytes${needed}, the limit is ${limit}; delete some`,
    );
  }

  /** Erases a snapshot. Does not throw, as the decision is made: the reconciler removes what is left. */
  async #eraseOrLeave(id: string, from: readonly SnapshotRow['status'][]): Promise<void> {
    try {
      await this.#erase(id, from);
    } catch (error) {
      this.#parts.log.warn({ err: error, snapshot_id: id }, 'a snapshot is left to the reconciler');
    }
  }

  async #erase(id: string, from: readonly SnapshotRow['status'][]): Promise<void> {
    const condemned = await this.#store.condemn(id, from);
    if (condemned === undefined) return;
    await enterRecordStep('record.erase');
    // Null: only the object store has it, from which the leading control removes it once the row is gone.
    const { runner_id: at } = condemned;
    if (at !== null) await this.#parts.runners.get(at).client.captures.remove(id);
    await enterRecordStep('record.erased');
    await this.#store.remove(id);
  }

  async #whileUnderWay<T>(id: string, work: () => Promise<T>): Promise<T> {
    this.#underWay.add(id);
    try {
      return await work();
    } finally {
      this.#underWay.delete(id);
    }
  }
}
