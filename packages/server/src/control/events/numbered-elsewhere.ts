/** Finds events that other controls have numbered, for the readers that watch here. One cheap query serves all of them. */
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** `all`: nothing is known of before. */
export type News = readonly string[] | 'all';

export class NumberedElsewhere {
  readonly #db: Database;
  /** Events up to this id are known here; undefined before the first look. */
  #seenId: number | undefined;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Call when this control has numbered the events that follow an id. */
  skipOwn(after: number, through: number): void {
    if (this.#seenId === after) this.#seenId = through;
  }

  /** Call while no reader watches. */
  forget(): void {
    this.#seenId = undefined;
  }

  /** Returns the organizations with events since the last look. */
  async look(): Promise<News> {
    const { rows } = await sql<{ last_id: number; ids: string[] | null }>`
      SELECT last_id, (
        SELECT array_agg(DISTINCT organization_id) FROM events WHERE id > ${this.#seenId ?? null} AND id <= last_id
      ) AS ids
      FROM event_counter`.execute(this.#db);
    const [found] = rows;
    const isFirst = this.#seenId === undefined;
    this.#seenId = found?.last_id ?? 0;
    return isFirst ? 'all' : (found?.ids ?? []);
  }
}
