/** Commands in SQL. */
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { ancestorsOf } from '../sandbox/record/family-store.ts';
import { OPEN_STATES, type CommandRow, type CommandUpdate, type NewCommandRow } from './command-tables.ts';

export interface CommandFilter {
  limit: number;
  after?: { createdAt: number; id: string };
  /** States of rows. */
  states?: readonly CommandRow['state'][] | undefined;
  tag?: string | undefined;
}

export class CommandStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  within(transaction: Database): CommandStore {
    return new CommandStore(transaction);
  }

  /** Inserts a command, unless the sandbox has one with its id in the guest. */
  async insert(row: NewCommandRow): Promise<void> {
    await this.#db
      .insertInto('commands')
      .values(row)
      .onConflict((conflict) => conflict.columns(['sandbox_id', 'guest_id']).doNothing())
      .execute();
  }

  find(sandboxId: string, id: string): Promise<CommandRow | undefined> {
    return this.#db
      .selectFrom('commands')
      .selectAll()
      .where('sandbox_id', '=', sandboxId)
      .where('id', '=', id)
      .executeTakeFirst();
  }

  /** Lists those of these commands that were started in the sandbox or in one from which it descends. */
  async listInherited(sandboxId: string, ids: readonly string[]): Promise<CommandRow[]> {
    const { rows } = await sql<CommandRow>`
      ${ancestorsOf(sandboxId)}
      SELECT commands.* FROM commands JOIN ancestors ON ancestors.id = commands.sandbox_id
      WHERE commands.id = ANY(${[...ids]}::text[])`.execute(this.#db);
    return rows;
  }

  /** Lists the commands of a sandbox, newest first. */
  async list(sandboxId: string, { limit, after, states, tag }: CommandFilter): Promise<CommandRow[]> {
    if (states?.length === 0) return [];
    let query = this.#db
      .selectFrom('commands')
      .selectAll()
      .where('sandbox_id', '=', sandboxId)
      .orderBy('started_at', 'desc')
      .orderBy('id', 'desc')
      .limit(limit);
    if (after !== undefined)
      query = query.where(sql<boolean>`(started_at, id) < (${after.createdAt}, ${after.id})`);
    if (states !== undefined) query = query.where('state', 'in', [...states]);
    if (tag !== undefined) query = query.where('tag', '=', tag);
    return query.execute();
  }

  findByGuestId(sandboxId: string, guestId: string): Promise<CommandRow | undefined> {
    return this.#db
      .selectFrom('commands')
      .selectAll()
      .where('sandbox_id', '=', sandboxId)
      .where('guest_id', '=', guestId)
      .executeTakeFirst();
  }

  /** Lists the commands of a sandbox that may run, and those with these ids in the guest. */
  listOfGuest(sandboxId: string, guestIds: readonly string[]): Promise<CommandRow[]> {
    return this.#db
      .selectFrom('commands')
      .selectAll()
      .where('sandbox_id', '=', sandboxId)
      .where((is) =>
        is.or([is('state', 'in', [...OPEN_STATES]), sql<boolean>`guest_id = ANY(${[...guestIds]}::text[])`]),
      )
      .execute();
  }

  async hasOpen(sandboxId: string): Promise<boolean> {
    const row = await this.#db
      .selectFrom('commands')
      .select('id')
      .where('sandbox_id', '=', sandboxId)
      .where('state', 'in', [...OPEN_STATES])
      .limit(1)
      .executeTakeFirst();
    return row !== undefined;
  }

  /** Lists the commands of a sandbox that may run. */
  listOpenOf(sandboxId: string): Promise<CommandRow[]> {
    return this.listOfGuest(sandboxId, []);
  }

  /** Lists the sandboxes of which a command may still run. */
  async listOpen(): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('commands')
      .innerJoin('sandboxes', 'sandboxes.id', 'commands.sandbox_id')
      .select('commands.sandbox_id')
      .distinct()
      .where('commands.state', 'in', [...OPEN_STATES])
      .where('sandboxes.ended_at', 'is', null)
      .execute();
    return rows.map((row) => row.sandbox_id);
  }

  /** Lists the organizations that have had commands. */
  async listOrganizations(): Promise<string[]> {
    const rows = await this.#db.selectFrom('commands').select('organization_id').distinct().execute();
    return rows.map((row) => row.organization_id);
  }

  /** Changes a command that is as it was read. Returns whether it was. */
  async update({ id, state }: Pick<CommandRow, 'id' | 'state'>, change: CommandUpdate): Promise<boolean> {
    const result = await this.#db
      .updateTable('commands')
      .set(change)
      .where('id', '=', id)
      .where('state', '=', state)
      .executeTakeFirst();
    return result.numUpdatedRows > 0n;
  }
}
