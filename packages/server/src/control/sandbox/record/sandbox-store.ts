/** Sandboxes in SQL. Only the sandbox's driver writes its state. */
import { AppError, FIRST_STATE, type SandboxState } from '@coppice/contract';
import { sql } from 'kysely';
import type { HostMoment } from '../../../lib/host-clock.ts';
import { lockOrganization } from '../../accounts/organizations/lock-organization.ts';
import { isWithinSql, type Reach } from '../../accounts/organizations/reach.ts';
import type { Database } from '../../db/database.ts';
import { isTaken } from '../../db/database-error.ts';
import { followHolder } from '../../disks/held-disk.ts';
import type { TakeDisks } from '../../disks/sandbox-disks.ts';
import type { Held } from '../../limits/quota.ts';
import { findSeen } from '../../ownership/seen-runner.ts';
import { keepLastSeen } from '../../time/lifetime.ts';
import { updateBilled } from './billed-update.ts';
import type { NewSandboxRow, SandboxRow, SandboxUpdate } from './sandbox-tables.ts';
import { areLive, IS_LIVE, LIVE_STATES } from './live-states.ts';
import { markResuming, moveHibernated, type Move, type Stay } from './moves.ts';
import type { LiveState } from './record.ts';
import { ROW_COLUMNS } from './row-columns.ts';
import { LISTED_COLUMNS, type ListedRow } from './stored-state.ts';

export interface SandboxFilter {
  reach: Reach;
  statuses: readonly SandboxState[];
  name?: string | undefined;
  /** All of them must match. */
  labels: Readonly<Record<string, string>>;
  limit: number;
  /** The list contains only sandboxes older than this one. */
  after?: { createdAt: number; id: string };
}

/** Throws `capacity` if the organization, which holds this already, may not have more. */
export type Admit = (held: Held) => void;

export interface UseOfSandbox extends Pick<LiveState, 'operation'> {
  id: string;
  lastActiveAt: number;
  isInUse: boolean;
}

/** Rows of a statement. A row holds up to hundreds of kilobytes of network policy. */
const PAGE_ROWS = 200;

export class SandboxStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Returns a store that uses the transaction. */
  within(transaction: Database): SandboxStore {
    return new SandboxStore(transaction);
  }

  /**
   * Inserts all of them or none, and takes their disks in the same transaction. They belong to one organization, which has
   * one such transaction at a time. Throws what `admit` throws, and `already_exists` for a name that is taken.
   */
  insert(rows: readonly NewSandboxRow[], admit: Admit, takeDisks?: TakeDisks): Promise<SandboxRow[]> {
    return this.#db.transaction().execute(async (transaction) => {
      await this.within(transaction).#admit(rows[0]?.organization_id ?? '', admit);
      const disks = (await takeDisks?.(transaction)) ?? [];
      return insertRows(
        transaction,
        rows.map((row, index) => ({ ...row, ...disks[index] })),
      );
    });
  }

  /**
   * Marks a hibernated sandbox as one that holds vCPUs and memory again, and may have a VM, at its own runner or at another one.
   * Throws what `admit` throws.
   */
  reserveResume(from: SandboxRow, admit: Admit, move: Move | Stay): Promise<SandboxRow> {
    return this.#db.transaction().execute(async (transaction) => {
      const store = this.within(transaction);
      await store.#admit(from.organization_id, admit);
      return move.kind === 'stay' ? markResuming(transaction, from, move) : store.move(from, move);
    });
  }

  /**
   * Call while nothing is under way at the runner: a killed control may have left marks of operations and requests. Those of resumes
   * stay, as the runner may have a VM.
   */
  async forgetMarks(runnerId: string): Promise<void> {
    await this.#db
      .updateTable('sandboxes')
      .set({ is_in_use: false, operation: null })
      .where('runner_id', '=', runnerId)
      .where('status', 'in', LIVE_STATES)
      .where(sql<boolean>`(is_in_use OR operation IS NOT NULL)`)
      .execute();
  }

  /** Gives a hibernated sandbox to another runner. */
  move(from: SandboxRow, move: Move): Promise<SandboxRow> {
    return moveHibernated(this.#db, from, move);
  }

  /** Returns how many sandboxes of a runner are not final. */
  async countAlive(runnerId: string): Promise<number> {
    const { count } = await this.#db
      .selectFrom('sandboxes')
      .select(sql<number>`count(*)`.as('count'))
      .where('runner_id', '=', runnerId)
      .where('status', 'in', LIVE_STATES)
      .executeTakeFirstOrThrow();
    return count;
  }

  /** Returns the ids of a runner's hibernated sandboxes. */
  async listHibernated(runnerId: string): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('sandboxes')
      .select('id')
      .where('runner_id', '=', runnerId)
      .where('status', '=', 'hibernated')
      .execute();
    return rows.map((row) => row.id);
  }

  async #admit(organizationId: string, admit: Admit): Promise<void> {
    await lockOrganization(this.#db, organizationId);
    admit(await this.readHeld(organizationId));
  }

  /** Returns what the organization holds now. A hibernated sandbox holds vCPUs and memory only if it is about to run. */
  async readHeld(organizationId: string): Promise<Held> {
    const { rows } = await sql<Held>`
      SELECT count(*) AS sandboxes, coalesce(sum(vcpus) FILTER (WHERE runs), 0)::bigint AS vcpus,
        coalesce(sum(mem_mib) FILTER (WHERE runs), 0)::bigint AS mem_mib
      FROM (
        SELECT vcpus, mem_mib, status <> 'hibernated' OR is_resuming AS runs FROM sandboxes
        WHERE organization_id = ${organizationId} AND status IN ('creating', 'running', 'hibernated')) live`.execute(
      this.#db,
    );
    return rows[0] ?? { sandboxes: 0, vcpus: 0, mem_mib: 0 };
  }

  /**
   * Changes a sandbox that is still as in `from`. The same statement bills what the change ends: a stretch of
   * running, or the sandbox. The disk of the sandbox follows its state. Throws `already_exists` for a name that is taken,
   * and `unavailable` if it was changed meanwhile.
   */
  update(from: SandboxRow, change: SandboxUpdate): Promise<SandboxRow> {
    const diskId = change.disk_id ?? from.disk_id;
    if (diskId === null || change.status === undefined) return this.#update(from, change);
    const both = async (transaction: Database): Promise<SandboxRow> => {
      const row = await this.within(transaction).#update(from, change);
      await followHolder(transaction, row);
      return row;
    };
    return this.#db.isTransaction ? both(this.#db) : this.#db.transaction().execute(both);
  }

  async #update(from: SandboxRow, change: SandboxUpdate): Promise<SandboxRow> {
    const { id, status } = from;
    const row = await named(change.name, () => updateBilled(this.#db, from, change));
    if (row === undefined)
      // An earlier statement of this process was given up but committed all the same. The row is read again before the
      // next change.
      throw new AppError('unavailable', 'the record was changed meanwhile; try again', {
        details: { id, from: status },
      });
    return row;
  }

  /** Returns those that exist within reach. */
  listByIds(reach: Reach, ids: readonly string[]): Promise<ListedRow[]> {
    return this.#db
      .selectFrom('sandboxes')
      .select(LISTED_COLUMNS)
      .where('id', 'in', [...ids])
      .where(isWithinSql(reach, 'sandboxes'))
      .execute();
  }

  /** Throws `already_exists` if a live sandbox of the team has the name. The insert decides between concurrent creates. */
  async assertNameFree(teamId: string, name: string): Promise<void> {
    const taken = await this.#db
      .selectFrom('sandboxes')
      .select('id')
      .where('team_id', '=', teamId)
      .where('name', '=', name)
      .where(IS_LIVE)
      .executeTakeFirst();
    if (taken !== undefined) throw nameTaken(name);
  }

  /** Finds a sandbox of any organization. Returns undefined if there is none. */
  findById(id: string): Promise<SandboxRow | undefined> {
    return this.#db.selectFrom('sandboxes').select(ROW_COLUMNS).where('id', '=', id).executeTakeFirst();
  }

  async get(id: string): Promise<SandboxRow> {
    const row = await this.findById(id);
    if (row === undefined) throw new AppError('internal', 'the record is gone', { details: { id } });
    return row;
  }

  /** Returns matching sandboxes, the newest first. */
  list(filter: SandboxFilter): Promise<ListedRow[]> {
    let query = this.#db
      .selectFrom('sandboxes')
      .select(LISTED_COLUMNS)
      .where(isWithinSql(filter.reach, 'sandboxes'))
      .where('status', 'in', [...filter.statuses])
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(filter.limit);
    if (areLive(filter.statuses)) query = query.where(IS_LIVE);
    if (filter.name !== undefined) query = query.where('name', '=', filter.name);
    if (Object.keys(filter.labels).length > 0) {
      query = query.where(sql<boolean>`labels @> ${JSON.stringify(filter.labels)}::jsonb`);
    }
    if (filter.after !== undefined) {
      query = query.where(sql<boolean>`(created_at, id) < (${filter.after.createdAt}, ${filter.after.id})`);
    }
    return query.execute();
  }

  /** Returns the variables of a sandbox, sealed. Null without any. */
  async findSealedEnv(id: string): Promise<Buffer | null> {
    const row = await this.#db
      .selectFrom('sandboxes')
      .select('sealed_env')
      .where('id', '=', id)
      .executeTakeFirst();
    return row?.sealed_env ?? null;
  }

  /** Returns all sandboxes of a runner that are not final, of every organization. */
  async listAlive(runnerId: string): Promise<SandboxRow[]> {
    const seen = await findSeen(this.#db, runnerId);
    const found: SandboxRow[] = [];
    for (;;) {
      const page = await this.#listAliveAfter(runnerId, found.at(-1)?.id ?? '');
      for (const row of page)
        found.push(seen !== undefined && row.status === 'running' ? keepLastSeen(row, seen) : row);
      if (page.length < PAGE_ROWS) return found;
    }
  }

  #listAliveAfter(runnerId: string, id: string): Promise<SandboxRow[]> {
    return this.#db
      .selectFrom('sandboxes')
      .select(ROW_COLUMNS)
      .where('runner_id', '=', runnerId)
      .where('status', 'in', LIVE_STATES)
      .where('id', '>', id)
      .orderBy('id')
      .limit(PAGE_ROWS)
      .execute();
  }

  /** Returns those of the ids whose sandboxes belong to the runner and have not ended. */
  async filterAlive(runnerId: string, ids: readonly string[]): Promise<Set<string>> {
    if (ids.length === 0) return new Set();
    const rows = await this.#db
      .selectFrom('sandboxes')
      .select('id')
      .where('id', 'in', [...ids])
      .where('runner_id', '=', runnerId)
      .where('status', 'in', LIVE_STATES)
      .execute();
    return new Set(rows.map((row) => row.id));
  }

  /** Returns those of the captures that a sandbox names as its hibernation, made or requested. */
  async filterHibernations(captureIds: readonly string[]): Promise<Set<string>> {
    if (captureIds.length === 0) return new Set();
    const rows = await this.#db
      .selectFrom('sandboxes')
      .select('hibernation_id')
      .where('hibernation_id', 'in', [...captureIds])
      .where('status', 'in', LIVE_STATES)
      .execute();
    return new Set(rows.flatMap((row) => row.hibernation_id ?? []));
  }

  /** Records how sandboxes are used, and when each was used last. */
  async recordUses(uses: readonly UseOfSandbox[]): Promise<void> {
    if (uses.length === 0) return;
    const rows = JSON.stringify(
      uses.map(({ id, lastActiveAt, isInUse, operation }) => ({
        id,
        at: Math.round(lastActiveAt),
        in_use: isInUse,
        operation,
      })),
    );
    await sql`
      UPDATE sandboxes SET last_active_at = used.at, is_in_use = used.in_use, operation = used.operation
      FROM jsonb_to_recordset(${rows}::jsonb) AS used(id text, at bigint, in_use boolean, operation text)
      WHERE sandboxes.id = used.id AND sandboxes.status = 'running'`.execute(this.#db);
  }

  /** Records that the runner has these VMs now. Needed only if others of its sandboxes are missing: see seen-round.ts. */
  async recordSeen(ids: readonly string[], seen: HostMoment): Promise<void> {
    if (ids.length === 0) return;
    await this.#db
      .updateTable('sandboxes')
      .set({ last_seen_at: seen.wallMs, last_seen_boot_ms: seen.bootMs })
      .where('id', '=', sql<string>`ANY(${[...ids]}::text[])`)
      .where('status', '=', 'running')
      .execute();
  }
}

function insertRows(db: Database, rows: readonly NewSandboxRow[]): Promise<SandboxRow[]> {
  const created = rows.map((row) => ({ ...row, status: FIRST_STATE }));
  const names = rows.flatMap(({ name }) => name ?? []);
  return named(names[0], () => db.insertInto('sandboxes').values(created).returning(ROW_COLUMNS).execute());
}

/** Runs `write`, which sets a sandbox's name. Throws `already_exists` if another sandbox has the name. */
async function named<T>(name: string | null | undefined, write: () => Promise<T>): Promise<T> {
  try {
    return await write();
  } catch (error) {
    if (!isTaken(error, 'sandboxes_by_name')) throw error;
    throw nameTaken(name);
  }
}

/** Returns the error for a name that another sandbox of the team has. */
function nameTaken(name: string | null | undefined): AppError {
  const message = `name: a sandbox of the team is called ${JSON.stringify(name)}; choose another name, or destroy that sandbox`;
  return new AppError('already_exists', message);
}
