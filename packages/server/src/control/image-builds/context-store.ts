/**
 * Which control has the files of a context, in SQL: other controls forward requests with it to that one. A row only leads there.
 * Whether the context still waits, that control knows, so a row that is left does no harm until it is purged.
 */
import { sql, type RawBuilder } from 'kysely';
import type { Database } from '../db/database.ts';
import { DATABASE_NOW } from '../ownership/database-time.ts';
import { IS_LIVE_CONTROL } from '../ownership/live-controls.ts';

/**
 * A row stays so much longer than its context waits: the start of a build may be refused after that time, and the context then waits
 * again.
 */
const GRACE_MS = 600_000;
const CONTEXT_ID = /^context[0-9a-f]{20}$/u;

export class ContextStore {
  readonly #db: Database;
  /** Id of this control. */
  readonly #control: string;

  constructor(db: Database, control: string) {
    this.#db = db;
    this.#control = control;
  }

  /** Notes that this control has a context, which waits for `waitMs` from now on. */
  async insert(context: { id: string; organizationId: string }, waitMs: number): Promise<void> {
    await this.#db
      .insertInto('build_contexts')
      .values({
        id: context.id,
        organization_id: context.organizationId,
        control_id: this.#control,
        expires_at: expiryAfter(waitMs),
      })
      .execute();
  }

  /** Notes that a context waits again, for `waitMs` from now on. */
  async extend(id: string, waitMs: number): Promise<void> {
    await this.#db
      .updateTable('build_contexts')
      .set({ expires_at: expiryAfter(waitMs) })
      .where('id', '=', id)
      .execute();
  }

  async delete(id: string): Promise<void> {
    await this.#db.deleteFrom('build_contexts').where('id', '=', id).execute();
  }

  /** Returns the id of another control that has the context of the organization, and can be asked. */
  async findElsewhere(organizationId: string, id: string): Promise<string | undefined> {
    if (!CONTEXT_ID.test(id)) return undefined;
    const row = await this.#db
      .selectFrom('build_contexts')
      .innerJoin('controls', 'controls.id', 'build_contexts.control_id')
      .select('control_id')
      .where('build_contexts.id', '=', id)
      .where('organization_id', '=', organizationId)
      .where('control_id', '<>', this.#control)
      .where('controls.address', 'is not', null)
      .where(IS_LIVE_CONTROL)
      .executeTakeFirst();
    return row?.control_id;
  }

  /**
   * Deletes rows that have expired, and those of controls that have ended or were fenced. A control whose lease is only over may renew
   * it, and still has its contexts.
   */
  async purge(): Promise<void> {
    await this.#db
      .deleteFrom('build_contexts')
      .where(
        sql<boolean>`(expires_at < ${DATABASE_NOW} OR NOT EXISTS (
          SELECT FROM controls WHERE controls.id = build_contexts.control_id AND NOT controls.is_fenced))`,
      )
      .execute();
  }
}

function expiryAfter(waitMs: number): RawBuilder<number> {
  return sql<number>`${DATABASE_NOW} + ${waitMs + GRACE_MS}::bigint`;
}
