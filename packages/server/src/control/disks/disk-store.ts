/** Disks in SQL, including those that are being made or removed. */
import { sql } from 'kysely';
import type { DiskState } from '../../lib/protocol/disk-protocol.ts';
import { isWithinSql, type Reach } from '../accounts/organizations/reach.ts';
import { chargeStorage } from '../billing/storage/charge-storage.ts';
import type { Database } from '../db/database.ts';
import { isUpToSql, type Ownership } from '../ownership/ownership.ts';
import type { DiskUse } from './disk-quota.ts';
import type { DiskRow, NewDiskRow } from './disk-tables.ts';

/** A disk with the name of its parent. */
export interface NamedDiskRow extends DiskRow {
  parent_name: string | null;
}

export interface DiskFilter {
  reach: Reach;
  limit: number;
  /** Only those older than this one. */
  after?: { createdAt: number; id: string };
}

export class DiskStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  within(transaction: Database): DiskStore {
    return new DiskStore(transaction);
  }

  /**
   * Runs `work` alone among all changes to the disks of the organization: which exist, who holds them, and how large
   * they are.
   */
  alone<T>(
    organizationId: string,
    work: (store: DiskStore, transaction: Database) => Promise<T>,
  ): Promise<T> {
    return this.#atomically(async (transaction) => {
      await lockDisks(transaction, organizationId);
      return work(this.within(transaction), transaction);
    });
  }

  async insert(rows: readonly NewDiskRow[]): Promise<void> {
    await this.#db
      .insertInto('disks')
      .values([...rows])
      .execute();
  }

  /** Finds a disk that is ready. */
  find(reach: Reach, name: string): Promise<NamedDiskRow | undefined> {
    return this.#select()
      .where('disks.name', '=', name)
      .where('disks.status', '=', 'ready')
      .where(isWithinSql(reach, 'disks'))
      .executeTakeFirst();
  }

  /** Finds a disk in any state. */
  findById(id: string): Promise<NamedDiskRow | undefined> {
    return this.#select().where('disks.id', '=', id).executeTakeFirst();
  }

  /** Lists the disks that are ready, newest first. */
  list({ reach, limit, after }: DiskFilter): Promise<NamedDiskRow[]> {
    let query = this.#select()
      .where(isWithinSql(reach, 'disks'))
      .where('disks.status', '=', 'ready')
      .orderBy('disks.created_at', 'desc')
      .orderBy('disks.id', 'desc')
      .limit(limit);
    if (after !== undefined)
      query = query.where(sql<boolean>`(disks.created_at, disks.id) < (${after.createdAt}, ${after.id})`);
    return query.execute();
  }

  async sum(organizationId: string): Promise<DiskUse> {
    const { disks, gb } = await this.#db
      .selectFrom('disks')
      .select([
        sql<string>`count(*)::text`.as('disks'),
        sql<string>`coalesce(sum(greatest(size_gb, growing_to_gb)), 0)::text`.as('gb'),
      ])
      .where('organization_id', '=', organizationId)
      .where('status', '<>', 'deleting')
      .executeTakeFirstOrThrow();
    return { disks: Number(disks), gb: Number(gb) };
  }

  /** Returns all names that are in use, also of disks that are being made. */
  async listNames(organizationId: string): Promise<Set<string>> {
    const rows = await this.#db
      .selectFrom('disks')
      .select('name')
      .where('organization_id', '=', organizationId)
      .where('status', '<>', 'deleting')
      .execute();
    return new Set(rows.map(({ name }) => name));
  }

  /** Returns the names of the disks that were forked from this one. */
  async listForks(id: string, status: 'existing' | 'deleting' = 'existing'): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('disks')
      .select('name')
      .where('parent_id', '=', id)
      .where('status', status === 'deleting' ? '=' : '<>', 'deleting')
      .orderBy('created_at')
      .execute();
    return rows.map(({ name }) => name);
  }

  /** Marks a disk as ready. Returns false if it is not being made any more. */
  async complete(id: string, size: { sizeGb: number }, state: DiskState): Promise<boolean> {
    const { numUpdatedRows } = await this.#db
      .updateTable('disks')
      .set({ status: 'ready', size_gb: size.sizeGb, ...readState(state) })
      .where('id', '=', id)
      .where('status', '=', 'creating')
      .executeTakeFirst();
    return numUpdatedRows > 0n;
  }

  /** Sets the size of a disk that is being made, so that quotas count it. */
  async setNewSize(id: string, sizeGb: number): Promise<void> {
    await this.#db
      .updateTable('disks')
      .set({ size_gb: sizeGb })
      .where('id', '=', id)
      .where('status', '=', 'creating')
      .execute();
  }

  /** Stores what the runner knows of a disk. */
  async noteState(id: string, state: DiskState): Promise<void> {
    await this.#db.updateTable('disks').set(readState(state)).where('id', '=', id).execute();
  }

  /**
   * Marks a disk as `deleting`: callers no longer see it, its name is free, and what it stored until `now` is billed.
   * Returns false if it was in no state of `from`.
   */
  condemn(
    id: string,
    from: readonly DiskRow['status'][],
    { now, control }: { now: number; control: string },
  ): Promise<boolean> {
    return this.#atomically(async (transaction) => {
      await chargeStorage(transaction, id, now);
      const { numUpdatedRows } = await transaction
        .updateTable('disks')
        .set({ status: 'deleting', control_id: control })
        .where('id', '=', id)
        .where('status', 'in', [...from])
        .executeTakeFirst();
      return numUpdatedRows > 0n;
    });
  }

  /** Takes {@link condemn} back. */
  async revive(id: string): Promise<void> {
    await this.#db
      .updateTable('disks')
      .set({ status: 'ready' })
      .where('id', '=', id)
      .where('status', '=', 'deleting')
      .execute();
  }

  async remove(id: string): Promise<void> {
    await this.#db.deleteFrom('disks').where('id', '=', id).where('status', '=', 'deleting').execute();
  }

  /** Lists disks that this control is to make or remove, without those that a sandbox still holds. */
  listUnsettled(ownership: Ownership): Promise<DiskRow[]> {
    return this.#db
      .selectFrom('disks')
      .selectAll()
      .where('status', '<>', 'ready')
      .where('sandbox_id', 'is', null)
      .where(isUpToSql('control_id', ownership))
      .execute();
  }

  /** Whether a sandbox with the disk is being forked, so that forks of the disk as it is are being made. */
  async isBeingForked(id: string): Promise<boolean> {
    const fork = await this.#db
      .selectFrom('disks')
      .select('id')
      .where('parent_id', '=', id)
      .where('parent_version', 'is', null)
      .where('status', '=', 'creating')
      .limit(1)
      .executeTakeFirst();
    return fork !== undefined;
  }

  /** Notes the size to which a disk will grow, and the control that has it grown. */
  async setGrowing(id: string, sizeGb: number, control: string): Promise<void> {
    await this.#db
      .updateTable('disks')
      .set({ growing_to_gb: sizeGb, control_id: control })
      .where('id', '=', id)
      .execute();
  }

  async forgetGrowth(id: string): Promise<void> {
    await this.#db.updateTable('disks').set({ growing_to_gb: null }).where('id', '=', id).execute();
  }

  async completeGrowth(id: string, sizeGb: number, state: DiskState): Promise<void> {
    await this.#db
      .updateTable('disks')
      .set({
        ...readState(state),
        size_gb: sql<number>`greatest(size_gb, ${sizeGb}::integer)`,
        growing_to_gb: sql<
          number | null
        >`CASE WHEN growing_to_gb > ${sizeGb}::integer THEN growing_to_gb END`,
      })
      .where('id', '=', id)
      .execute();
  }

  listGrowing(ownership: Ownership): Promise<DiskRow[]> {
    return this.#db
      .selectFrom('disks')
      .selectAll()
      .where('growing_to_gb', 'is not', null)
      .where('status', '=', 'ready')
      .where(isUpToSql('control_id', ownership))
      .execute();
  }

  /** Makes the next round measure what the disk stores. */
  async noteDataChanged(id: string): Promise<void> {
    await this.#db.updateTable('disks').set({ stored_version: null }).where('id', '=', id).execute();
  }

  /** Lists disks that were measured before `before`, or that have changed since. */
  listToMeasure(before: number): Promise<DiskRow[]> {
    return this.#db
      .selectFrom('disks')
      .selectAll()
      .where('status', '=', 'ready')
      .where((row) => row.or([row('stored_at', '<', before), row('stored_version', 'is', null)]))
      .orderBy('stored_at')
      .execute();
  }

  /** Stores a measurement, after billing the time since the last one by that one. */
  noteStored(id: string, measured: { bytes: number; version: number }, now: number): Promise<void> {
    return this.#atomically(async (transaction) => {
      await chargeStorage(transaction, id, now);
      await transaction
        .updateTable('disks')
        .set({ stored_bytes: measured.bytes, stored_version: measured.version })
        .where('id', '=', id)
        .execute();
    });
  }

  /** Lists organizations that have, or had, disks. */
  async listOrganizations(): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('disks')
      .select('organization_id')
      .union(this.#db.selectFrom('disk_storage').select('organization_id'))
      .execute();
    return rows.map((row) => row.organization_id);
  }

  #atomically<T>(work: (transaction: Database) => Promise<T>): Promise<T> {
    return this.#db.isTransaction ? work(this.#db) : this.#db.transaction().execute(work);
  }

  #select() {
    return this.#db
      .selectFrom('disks')
      .leftJoin('disks as parent', 'parent.id', 'disks.parent_id')
      .selectAll('disks')
      .select('parent.name as parent_name');
  }
}

/** Locks the disks of an organization until the end of the transaction. */
async function lockDisks(transaction: Database, organizationId: string): Promise<void> {
  // Weaker than FOR UPDATE, so that inserts of rows that refer to the organization do not wait.
  await sql`SELECT FROM organizations WHERE id = ${organizationId} FOR NO KEY UPDATE`.execute(transaction);
}

const HELD_ELSEWHERE = 'another service that shares the object store holds the disk';

function readState({ version, drained_at, attachment, is_held_elsewhere }: DiskState) {
  const held = attachment ?? { drained_version: version, drained_at, dirty_bytes: 0, waits_for: null };
  return {
    version: Math.max(version, held.drained_version),
    drained_at: Date.parse(held.drained_at),
    dirty_bytes: held.dirty_bytes,
    waits_for: is_held_elsewhere ? HELD_ELSEWHERE : held.waits_for,
  };
}
