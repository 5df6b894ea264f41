/** Snapshots in SQL, including those that are still being made or removed. */
import { sql, type RawBuilder } from 'kysely';
import type { Reach } from '../accounts/organizations/reach.ts';
import type { Database } from '../db/database.ts';
import type { NewSnapshotRow, SnapshotRow, WholeSnapshotRow } from './snapshot-tables.ts';

export interface SnapshotFilter {
  reach: Reach;
  /** Only those of this sandbox. */
  runId?: string;
  limit: number;
  /** Only those that have not expired by then; Unix milliseconds. */
  now: number;
  /** Only those older than this one. */
  after?: { createdAt: number; id: string };
}

/** The snapshots at a runner, and those that only the object store has. */
export interface SnapshotPlace {
  runnerId: string;
  andStored: boolean;
}

export interface SavedSnapshot {
  sizeBytes: number;
  boundTo: Record<string, string>;
  /** The version of the sandbox's disk, and its size; undefined without one. */
  disk?: { version: number; gb: number } | undefined;
}

/** Columns of {@link SnapshotRow}: a list of whole rows could have hundreds of megabytes. */
const ROW_COLUMNS = [
  'id',
  'organization_id',
  'status',
  'run_id',
  'runner_id',
  'name',
  'image',
  'vcpus',
  'mem_mib',
  'disk_mib',
  'size_bytes',
  'bound_to',
  'created_at',
  'expires_at',
  'timeout_s',
  'max_lifetime_s',
  'labels',
  'auto_hibernate',
  'disk_id',
  'disk_name',
  'disk_version',
  'disk_gb',
] as const satisfies (keyof SnapshotRow)[];

/** How many expired snapshots are deleted in a row, before other things are reconciled. */
const MAX_EXPIRED = 100;

export class SnapshotStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  async insert(row: NewSnapshotRow): Promise<void> {
    await this.#db.insertInto('snapshots').values(row).execute();
  }

  /** Returns the same store in a transaction. */
  within(transaction: Database): SnapshotStore {
    return new SnapshotStore(transaction);
  }

  /** Marks a snapshot as ready. Returns undefined if it is not being made any more. */
  complete(id: string, { sizeBytes, boundTo, disk }: SavedSnapshot): Promise<SnapshotRow | undefined> {
    return this.#db
      .updateTable('snapshots')
      .set({
        status: 'ready',
        size_bytes: sizeBytes,
        bound_to: JSON.stringify(boundTo),
        ...(disk === undefined ? {} : { disk_version: disk.version, disk_gb: disk.gb }),
      })
      .where('id', '=', id)
      .where('status', '=', 'creating')
      .returning(ROW_COLUMNS)
      .executeTakeFirst();
  }

  /** Finds a snapshot in any state. */
  find(reach: Reach, id: string): Promise<SnapshotRow | undefined> {
    return this.#db
      .selectFrom('snapshots')
      .select(ROW_COLUMNS)
      .where('id', '=', id)
      .where(isOfReach(reach))
      .executeTakeFirst();
  }

  /** Finds a snapshot in any state, with what a sandbox needs that is restored from it. */
  findWhole(reach: Reach, id: string): Promise<WholeSnapshotRow | undefined> {
    return this.#db
      .selectFrom('snapshots')
      .selectAll()
      .where('id', '=', id)
      .where(isOfReach(reach))
      .executeTakeFirst();
  }

  /** Lists the snapshots that are ready, newest first. */
  list({ reach, runId, limit, now, after }: SnapshotFilter): Promise<SnapshotRow[]> {
    let query = this.#db
      .selectFrom('snapshots')
      .select(ROW_COLUMNS)
      .where(isOfReach(reach))
      .where('status', '=', 'ready')
      .where(hasNotExpired(now))
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(limit);
    if (runId !== undefined) query = query.where('run_id', '=', runId);
    if (after !== undefined)
      query = query.where(sql<boolean>`(created_at, id) < (${after.createdAt}, ${after.id})`);
    return query.execute();
  }

  /** Sums the bytes of the snapshots that callers see: those that are ready and have not expired by `now`. */
  async sumBytes(organizationId: string, now: number): Promise<number> {
    const { bytes } = await this.#db
      .selectFrom('snapshots')
      .select(sql<string>`coalesce(sum(size_bytes), 0)::text`.as('bytes'))
      .where('organization_id', '=', organizationId)
      .where('status', '=', 'ready')
      .where(hasNotExpired(now))
      .executeTakeFirstOrThrow();
    return Number(bytes);
  }

  /**
   * Marks a snapshot as `deleting`: callers no longer see it. Returns the runner that has its capture; undefined if it was in no
   * state of `from`.
   */
  condemn(
    id: string,
    from: readonly SnapshotRow['status'][],
  ): Promise<Pick<SnapshotRow, 'runner_id'> | undefined> {
    return this.#db
      .updateTable('snapshots')
      .set({ status: 'deleting' })
      .where('id', '=', id)
      .where('status', 'in', [...from])
      .returning('runner_id')
      .executeTakeFirst();
  }

  /** Changes a snapshot that is ready. Returns undefined if it is not. */
  change(
    id: string,
    change: Partial<Pick<SnapshotRow, 'name' | 'expires_at'>>,
  ): Promise<SnapshotRow | undefined> {
    return this.#db
      .updateTable('snapshots')
      .set(change)
      .where('id', '=', id)
      .where('status', '=', 'ready')
      .returning(ROW_COLUMNS)
      .executeTakeFirst();
  }

  /** Lists the ids of a runner's snapshots that have expired by `now`, of every organization, the first to expire first. */
  async listExpired(at: SnapshotPlace, now: number): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('snapshots')
      .select('id')
      .where(isAt(at))
      .where('expires_at', '<=', now)
      .where('status', '=', 'ready')
      .orderBy('expires_at')
      .limit(MAX_EXPIRED)
      .execute();
    return rows.map((row) => row.id);
  }

  /**
   * Marks a snapshot as `deleting` if it has expired by `now`. Returns false if its expiry was changed meanwhile, or if a
   * rollback to it is pending.
   */
  async condemnExpired(id: string, now: number): Promise<boolean> {
    const { numUpdatedRows } = await this.#db
      .updateTable('snapshots')
      .set({ status: 'deleting' })
      .where('id', '=', id)
      .where('status', '=', 'ready')
      .where('expires_at', '<=', now)
      .where(sql<boolean>`NOT EXISTS (SELECT FROM sandboxes WHERE rollback_snapshot_id = snapshots.id)`)
      .executeTakeFirst();
    return numUpdatedRows > 0n;
  }

  /** Lists the ids of a runner's snapshots that are being made or removed, of every organization. */
  async listUnsettled(at: SnapshotPlace): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('snapshots')
      .select('id')
      .where(isAt(at))
      .where('status', 'in', ['creating', 'deleting'])
      .execute();
    return rows.map((row) => row.id);
  }

  /** Returns those of the ids that are in SQL, in any state. */
  async findKnown(ids: readonly string[]): Promise<Set<string>> {
    if (ids.length === 0) return new Set();
    const rows = await this.#db
      .selectFrom('snapshots')
      .select('id')
      .where('id', 'in', [...ids])
      .execute();
    return new Set(rows.map((row) => row.id));
  }

  async remove(id: string): Promise<void> {
    await this.#db.deleteFrom('snapshots').where('id', '=', id).where('status', '=', 'deleting').execute();
  }
}

function isAt({ runnerId, andStored }: SnapshotPlace): RawBuilder<boolean> {
  return sql<boolean>`(runner_id = ${runnerId} OR (${andStored} AND runner_id IS NULL))`;
}

function hasNotExpired(now: number): RawBuilder<boolean> {
  return sql<boolean>`(expires_at IS NULL OR expires_at > ${now})`;
}

/** A snapshot belongs to the team of its sandbox. */
function isOfReach({ organizationId, onlyTeamId }: Reach): RawBuilder<boolean> {
  if (onlyTeamId === null) return sql<boolean>`organization_id = ${organizationId}`;
  return sql<boolean>`(organization_id = ${organizationId} AND EXISTS (
    SELECT FROM sandboxes WHERE sandboxes.id = snapshots.run_id AND sandboxes.team_id = ${onlyTeamId}))`;
}
