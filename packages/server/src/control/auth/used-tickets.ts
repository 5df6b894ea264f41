/** Tickets that were used, in SQL: a ticket opens one connection of the whole installation, whichever control it meets. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../db/database.ts';

/** For which used tickets are kept after they expire: the wall clock of a control may be set back. */
const KEPT_MS = 24 * 3_600_000;

export interface UsedTicketTable {
  nonce: string;
  /** Unix milliseconds. */
  expires_at: number;
}

export async function createUsedTickets(db: Kysely<unknown>): Promise<void> {
  await sql`
    CREATE TABLE used_tickets (
      nonce text PRIMARY KEY,
      expires_at bigint NOT NULL
    )`.execute(db);
  await sql`CREATE INDEX used_tickets_by_expiry ON used_tickets (expires_at)`.execute(db);
}

export class UsedTickets {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Marks a ticket as used. Returns false if it was used before. */
  async add(nonce: string, expiresAt: number): Promise<boolean> {
    const added = await this.#db
      .insertInto('used_tickets')
      .values({ nonce, expires_at: expiresAt })
      .onConflict((conflict) => conflict.doNothing())
      .executeTakeFirst();
    return added.numInsertedOrUpdatedRows === 1n;
  }

  async purge(): Promise<void> {
    await this.#db
      .deleteFrom('used_tickets')
      .where('expires_at', '<', Date.now() - KEPT_MS)
      .execute();
  }
}
