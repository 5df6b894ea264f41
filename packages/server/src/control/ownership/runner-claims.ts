/** Which control owns a runner, in SQL. One statement decides, so two never own a runner at a time. */
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
   * the first one. `seen` is the highest epoch that the runner knows. Returns the epoch of this control. Throws `unavailable`
   * if another control owns the runner, or if it is revoked.
   */
  async take({ id, seen }: { id: string; seen: number }, region: string): Promise<number> {
    await this.add(id, region);
    const epoch = await this.claim(id, seen);
    if (epoch === undefined)
      throw new AppError('unavailable', `another control owns the runner ${id}, or it is revoked`);
    await sql`
      UPDATE sandboxes SET runner_id = ${id}
      WHERE runner_id IS NULL AND status IN ('creating', 'running', 'hibernated')`.execute(this.#db);
    return epoch;
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
   * of the new owner; undefined if another control owns the runner, or if it is revoked.
   *
   * The epoch is above `seen`, the highest that the runner knows: after a restore of the database it knows more than SQL.
   */
  async claim(id: string, seen = 0): Promise<number | undefined> {
    const fenced = await this.#fenceFormer(id);
    const { rows } = await sql<{ epoch: number }>`
      UPDATE runners SET owner = ${this.#control}, epoch = greatest(epoch, ${seen}::bigint) + 1
      WHERE id = ${id} AND revoked_at IS NULL
        AND (owner IS NULL OR owner = ${fenced ?? null} OR (owner = ${this.#control} AND epoch < ${seen}::bigint))
      RETURNING epoch`.execute(this.#db);
    return rows[0]?.epoch ?? (await this.#findOwn(id));
  }

  /**
   * Fences the owner of a runner if its lease is over, and returns its id. It is fenced for good, so the runner may be taken
   * from it in a later statement. One statement for both would lock the two rows in the opposite order of a control that
   * gives its runners up, and PostgreSQL cannot check such a statement again after the wait for a lock.
   */
  async #fenceFormer(id: string): Promise<string | undefined> {
    const { rows } = await sql<{ id: string }>`
      UPDATE controls SET is_fenced = true
      WHERE id = (SELECT owner FROM runners WHERE runners.id = ${id}) AND id <> ${this.#control}
        AND (is_fenced OR lease_until < ${DATABASE_NOW})
      RETURNING id`.execute(this.#db);
    return rows[0]?.id;
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
