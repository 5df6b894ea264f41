/** Which control owns a runner, in SQL. The lock of its row decides, so two never own a runner at a time. */
import { AppError } from '@coppice/contract';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { DATABASE_NOW } from './database-time.ts';

export class RunnerClaims {
  readonly #db: Database;
  /** Id of this control. */
  readonly #control: string;

  constructor(db: Database, control: string) {
    this.#db = db;
    this.#control = control;
  }

  /**
   * Takes the runner that this control is connected with, which may be new. Sandboxes from before runners had ids are those of
   * the first one. Throws `unavailable` if another control owns it.
   */
  async take(id: string, region: string): Promise<void> {
    await this.add(id, region);
    if ((await this.claim(id)) === undefined)
      throw new AppError('unavailable', 'another control owns the runner of this machine');
    await sql`
      UPDATE sandboxes SET runner_id = ${id}
      WHERE runner_id IS NULL AND status IN ('creating', 'running', 'hibernated')`.execute(this.#db);
  }

  /** Adds a runner that is new. */
  async add(id: string, region: string): Promise<void> {
    await this.#db
      .insertInto('runners')
      .values({ id, region, owner: null })
      .onConflict((conflict) => conflict.doNothing())
      .execute();
  }

  /**
   * Takes a runner that has no owner, or whose owner has not renewed its lease, and fences that owner. Returns the epoch
   * of the new owner; undefined if another control owns the runner.
   */
  async claim(id: string): Promise<number | undefined> {
    if (!this.#db.isTransaction)
      return this.#db
        .transaction()
        .execute((transaction) => new RunnerClaims(transaction, this.#control).claim(id));
    // First the lock: PostgreSQL cannot look again at a row that changes under a statement with two updates.
    await this.#db.selectFrom('runners').select('id').where('id', '=', id).forUpdate().execute();
    const { rows } = await sql<{ epoch: number }>`
      WITH former AS (
        UPDATE controls SET is_fenced = true
        WHERE controls.id = (SELECT owner FROM runners WHERE runners.id = ${id}) AND controls.id <> ${this.#control}
          AND (is_fenced OR lease_until < ${DATABASE_NOW})
        RETURNING id)
      UPDATE runners SET owner = ${this.#control}, epoch = epoch + 1
      WHERE id = ${id} AND (owner IS NULL OR owner IN (SELECT former.id FROM former))
      RETURNING epoch`.execute(this.#db);
    return rows[0]?.epoch ?? (await this.#findOwn(id));
  }

  /** Returns the epoch of a runner that this control owns already. */
  async #findOwn(id: string): Promise<number | undefined> {
    const row = await this.#db
      .selectFrom('runners')
      .select('epoch')
      .where('id', '=', id)
      .where('owner', '=', this.#control)
      .executeTakeFirst();
    return row?.epoch;
  }
}
