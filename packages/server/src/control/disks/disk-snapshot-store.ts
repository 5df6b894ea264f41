/** Snapshots of disks in SQL, including those that are being taken or removed. */
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { isUpToSql, type Ownership } from '../ownership/ownership.ts';
import type { DiskSnapshotRow } from './disk-tables.ts';

export class DiskSnapshotStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  within(transaction: Database): DiskSnapshotStore {
    return new DiskSnapshotStore(transaction);
  }

  async insert(row: DiskSnapshotRow): Promise<void> {
    await this.#db.insertInto('disk_snapshots').values(row).execute();
  }

  /** Finds a snapshot in any state but `deleting`. */
  find(diskId: string, name: string): Promise<DiskSnapshotRow | undefined> {
    return this.#db
      .selectFrom('disk_snapshots')
      .selectAll()
      .where('disk_id', '=', diskId)
      .where('name', '=', name)
      .where('status', '<>', 'deleting')
      .executeTakeFirst();
  }

  findById(id: string): Promise<DiskSnapshotRow | undefined> {
    return this.#db.selectFrom('disk_snapshots').selectAll().where('id', '=', id).executeTakeFirst();
  }

  /** Lists the snapshots that are ready, newest first. */
  list(
    diskId: string,
    { limit, after }: { limit: number; after?: { createdAt: number; id: string } },
  ): Promise<DiskSnapshotRow[]> {
    let query = this.#db
      .selectFrom('disk_snapshots')
      .selectAll()
      .where('disk_id', '=', diskId)
      .where('status', '=', 'ready')
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(limit);
    if (after !== undefined)
      query = query.where(sql<boolean>`(created_at, id) < (${after.createdAt}, ${after.id})`);
    return query.execute();
  }

  /** Marks a snapshot as ready. Returns undefined if it is not being taken any more. */
  complete(
    id: string,
    taken: { version: number; size_gb: number; created_at: number },
  ): Promise<DiskSnapshotRow | undefined> {
    return this.#db
      .updateTable('disk_snapshots')
      .set({ status: 'ready', ...taken })
      .where('id', '=', id)
      .where('status', '=', 'creating')
      .returningAll()
      .executeTakeFirst();
  }

  /** Returns the condemned row; undefined if it was in no state of `from`. */
  condemn(
    id: string,
    from: readonly DiskSnapshotRow['status'][],
    control: string,
  ): Promise<DiskSnapshotRow | undefined> {
    return this.#db
      .updateTable('disk_snapshots')
      .set({ status: 'deleting', control_id: control })
      .where('id', '=', id)
      .where('status', 'in', [...from])
      .returningAll()
      .executeTakeFirst();
  }

  async remove(id: string): Promise<void> {
    await this.#db
      .deleteFrom('disk_snapshots')
      .where('id', '=', id)
      .where('status', '=', 'deleting')
      .execute();
  }

  /** Lists snapshots that this control is to take or remove, of disks that are ready. */
  listUnsettled(ownership: Ownership): Promise<DiskSnapshotRow[]> {
    return this.#db
      .selectFrom('disk_snapshots')
      .innerJoin('disks', 'disks.id', 'disk_snapshots.disk_id')
      .selectAll('disk_snapshots')
      .where('disk_snapshots.status', '<>', 'ready')
      .where('disks.status', '=', 'ready')
      .where(isUpToSql('disk_snapshots.control_id', ownership))
      .execute();
  }
}
