/**
 * Which control should get a runner of this one. A control with at least two more than another one gives it one, and the next
 * one only after a while:
 *
 *     findHeir ─► reserve (no other control hands over now) ─► drivers end here ─► give: owner and epoch in one statement
 *
 * In the end no control has two more than another one. A control that has just started gets none yet, so one that starts and ends
 * again and again does not move runners each time.
 */
import { sql, type RawBuilder } from 'kysely';
import type { Database } from '../db/database.ts';
import { IS_LIVE_CONTROL } from './live-controls.ts';
import { DATABASE_NOW } from './database-time.ts';
import { takingUntil } from './owners.ts';

/** Between two handovers in the installation. */
export const HANDOVER_GAP_MS = 2_000;
/** Between two handovers of the same runner. */
const REST_MS = 60_000;

/** SQL for `runners`: a build has steps without a request between them, which need its control. */
const HAS_NO_BUILD = sql<boolean>`NOT EXISTS (
  SELECT FROM image_builds JOIN sandboxes ON sandboxes.id = image_builds.sandbox_id
  WHERE image_builds.ended_at IS NULL AND sandboxes.runner_id = runners.id)`;

/** SQL for `controls`: one that ends keeps its runners until then, so what it got would have to move again at once. */
const MAY_GET = sql<boolean>`(${IS_LIVE_CONTROL} AND NOT controls.is_leaving)`;

export interface RunnerBalanceOptions {
  /** Id of this control. */
  control: string;
  /** A control gets runners of others once it has been alive for this time. */
  settleMs: number;
}

export class RunnerBalance {
  readonly #db: Database;
  readonly #options: RunnerBalanceOptions;

  constructor(db: Database, options: RunnerBalanceOptions) {
    this.#db = db;
    this.#options = options;
  }

  /** Returns the control to which this one should give a runner. Undefined if there is none, or not now. */
  async findHeir(): Promise<string | undefined> {
    return findHeir(this.#db, this.#options);
  }

  /** Lists the runners that this control may give away: those that all controls reach, and that have not moved lately. */
  async listMovable(): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('runners')
      .select('id')
      .where('owner', '=', this.#options.control)
      .where('address', 'is not', null)
      .where('revoked_at', 'is', null)
      .where(sql<boolean>`coalesce(handed_at, 0) < ${DATABASE_NOW} - ${REST_MS}::bigint`)
      .where(HAS_NO_BUILD)
      .orderBy('id')
      .execute();
    return rows.map((row) => row.id);
  }

  /**
   * Begins the only handover of the installation for a while: requests at other controls wait from now on. Returns false if the
   * runner should stay.
   */
  async reserve(id: string, heir: string): Promise<boolean> {
    return this.#db.transaction().execute(async (transaction) => {
      await sql`SELECT pg_advisory_xact_lock(hashtextextended('coppice-handover', 0))`.execute(transaction);
      if ((await findHeir(transaction, this.#options)) !== heir) return false;
      const { numUpdatedRows } = await transaction
        .updateTable('runners')
        .set({
          // The time of the statement: that of the transaction is from before the wait for the lock.
          handed_at: sql<number>`(extract(epoch FROM clock_timestamp()) * 1000)::bigint`,
          taking_until: takingUntil(),
        })
        .where('id', '=', id)
        .where('owner', '=', this.#options.control)
        .where('revoked_at', 'is', null)
        .executeTakeFirst();
      return numUpdatedRows > 0n;
    });
  }

  /** Whether a build has begun at a runner since it was listed. */
  async hasBuild(id: string): Promise<boolean> {
    const free = await this.#db
      .selectFrom('runners')
      .select('id')
      .where('id', '=', id)
      .where(HAS_NO_BUILD)
      .executeTakeFirst();
    return free === undefined;
  }

  /**
   * Gives a runner to another control, which has the next epoch. Returns false if that control ends or is gone, or the
   * runner is, or if a build runs there.
   */
  async give(id: string, heir: string): Promise<boolean> {
    const { numUpdatedRows } = await this.#db
      .updateTable('runners')
      .set({ owner: heir, epoch: sql<number>`epoch + 1`, taking_until: takingUntil() })
      .where('id', '=', id)
      .where('owner', '=', this.#options.control)
      .where('revoked_at', 'is', null)
      .where(HAS_NO_BUILD)
      .where(sql<boolean>`EXISTS (SELECT FROM controls WHERE controls.id = ${heir} AND ${MAY_GET})`)
      .executeTakeFirst();
    return numUpdatedRows > 0n;
  }
}

async function findHeir(
  db: Database,
  { control, settleMs }: RunnerBalanceOptions,
): Promise<string | undefined> {
  const { rows } = await sql<{ id: string }>`
    WITH owners AS (
      SELECT controls.id, started_at,
        count(runners.id) FILTER (WHERE runners.revoked_at IS NULL) AS runners
      FROM controls LEFT JOIN runners ON runners.owner = controls.id
      WHERE ${MAY_GET} AND controls.address IS NOT NULL
      GROUP BY controls.id, started_at)
    SELECT id FROM owners
    WHERE id <> ${control} AND started_at <= ${DATABASE_NOW} - ${settleMs}::bigint
      AND runners + 2 <= (SELECT runners FROM owners WHERE id = ${control})
      AND NOT EXISTS (SELECT FROM runners WHERE ${isRecent()})
    ORDER BY runners, id LIMIT 1`.execute(db);
  return rows[0]?.id;
}

function isRecent(): RawBuilder<boolean> {
  return sql<boolean>`handed_at > ${DATABASE_NOW} - ${HANDOVER_GAP_MS}::bigint`;
}
