/** Sandboxes in SQL. Writes of a state come only from the sandbox's driver. */
import { AppError, type SandboxState } from '@coppice/contract';
import { sql } from 'kysely';
import type { HostMoment } from '../../../lib/host-clock.ts';
import { isWithinSql, type Reach } from '../../accounts/reach.ts';
import { updateBilled } from '../../billing/billed-update.ts';
import type { Database } from '../../db/database.ts';
import type { NewSandboxRow, SandboxRow, SandboxUpdate } from './sandbox-tables.ts';
import { LIVE_STATES } from './live-list.ts';
import { RECORD_COLUMNS, type RecordRow } from './record.ts';

export interface SandboxFilter {
  reach: Reach;
  statuses: readonly SandboxState[];
  /** All must be equal. */
  labels: Readonly<Record<string, string>>;
  limit: number;
  /** Only those older than this one. */
  after?: { createdAt: number; id: string };
}

export interface Heartbeat {
  id: string;
  lastActiveAt: number;
}

export class SandboxStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** The same, in a transaction. */
  within(transaction: Database): SandboxStore {
    return new SandboxStore(transaction);
  }

  /** All of them or none. */
  insert(rows: readonly NewSandboxRow[]): Promise<SandboxRow[]> {
    return this.#db.insertInto('sandboxes').values(rows).returningAll().execute();
  }

  /**
   * Changes a sandbox that is still as `from` is; that it is not is a second writer, which must not be. What the change
   * ends, a stretch of running or the sandbox, is billed by the same statement.
   */
  async update(from: SandboxRow, change: SandboxUpdate): Promise<SandboxRow> {
    const { id, status } = from;
    const row = await updateBilled(this.#db, from, change);
    if (row === undefined)
      // By a statement of ours that was given up and made all the same: the row is read again before the next.
      throw new AppError('unavailable', 'the record was changed meanwhile; try again', {
        details: { id, from: status },
      });
    return row;
  }

  find(reach: Reach, id: string): Promise<SandboxRow | undefined> {
    return this.#db
      .selectFrom('sandboxes')
      .selectAll()
      .where('id', '=', id)
      .where(isWithinSql(reach, 'sandboxes'))
      .executeTakeFirst();
  }

  /** Those of them that there are. */
  findAll(reach: Reach, ids: readonly string[]): Promise<RecordRow[]> {
    return this.#db
      .selectFrom('sandboxes')
      .select(RECORD_COLUMNS)
      .where('id', 'in', [...ids])
      .where(isWithinSql(reach, 'sandboxes'))
      .execute();
  }

  /** Whose ever it is; undefined when there is none. */
  findById(id: string): Promise<SandboxRow | undefined> {
    return this.#db.selectFrom('sandboxes').selectAll().where('id', '=', id).executeTakeFirst();
  }

  async get(id: string): Promise<SandboxRow> {
    const row = await this.findById(id);
    if (row === undefined) throw new AppError('internal', 'the record is gone', { details: { id } });
    return row;
  }

  /** Newest first. */
  list(filter: SandboxFilter): Promise<RecordRow[]> {
    let query = this.#db
      .selectFrom('sandboxes')
      .select(RECORD_COLUMNS)
      .where(isWithinSql(filter.reach, 'sandboxes'))
      .where('status', 'in', [...filter.statuses])
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(filter.limit);
    if (Object.keys(filter.labels).length > 0) {
      query = query.where(sql<boolean>`labels @> ${JSON.stringify(filter.labels)}::jsonb`);
    }
    if (filter.after !== undefined) {
      query = query.where(sql<boolean>`(created_at, id) < (${filter.after.createdAt}, ${filter.after.id})`);
    }
    return query.execute();
  }

  /** All that are not final, of every organization. */
  listAlive(): Promise<SandboxRow[]> {
    return this.#db.selectFrom('sandboxes').selectAll().where('status', 'in', LIVE_STATES).execute();
  }

  /** Notes that the runner has these VMs now, and when each was last used. */
  async recordHeartbeats(heartbeats: readonly Heartbeat[], seen: HostMoment): Promise<void> {
    if (heartbeats.length === 0) return;
    const rows = JSON.stringify(
      heartbeats.map(({ id, lastActiveAt }) => ({ id, at: Math.round(lastActiveAt) })),
    );
    await sql`
      UPDATE sandboxes SET last_seen_at = ${seen.wallMs}, last_seen_boot_ms = ${seen.bootMs}, last_active_at = beat.at
      FROM jsonb_to_recordset(${rows}::jsonb) AS beat(id text, at bigint)
      WHERE sandboxes.id = beat.id AND sandboxes.status = 'running'`.execute(this.#db);
  }
}
