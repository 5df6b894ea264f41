import { sql } from 'kysely';
import type { Logger } from 'pino';
import type { Database } from '../db/database.ts';

const WRITE_INTERVAL_MS = 60_000;

/** When each API key was last used: gathered here and written once a minute for all, out of the requests' way. */
export class KeyUses implements AsyncDisposable {
  readonly #db: Database;
  readonly #log: Logger;
  readonly #timer: NodeJS.Timeout;
  #usedAt = new Map<string, number>();
  #writing: Promise<void> = Promise.resolve();

  constructor(db: Database, log: Logger, intervalMs = WRITE_INTERVAL_MS) {
    this.#db = db;
    this.#log = log;
    this.#timer = setInterval(() => void this.write(), intervalMs);
  }

  note(apiKeyId: string): void {
    this.#usedAt.set(apiKeyId, Date.now());
  }

  /** What is lost with a write that fails is told by the next use. */
  write(): Promise<void> {
    const used = this.#usedAt;
    if (used.size === 0) return this.#writing;
    this.#usedAt = new Map();
    this.#writing = this.#writing
      .then(() => writeUses(this.#db, used))
      .catch((error: unknown) => this.#log.warn({ err: error }, 'when keys were used is not written'));
    return this.#writing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.write();
  }
}

async function writeUses(db: Database, used: ReadonlyMap<string, number>): Promise<void> {
  const ids = [...used.keys()];
  const times = [...used.values()];
  await sql`
    UPDATE api_keys SET last_used_at = used.at
    FROM unnest(${ids}::text[], ${times}::bigint[]) AS used (id, at)
    WHERE api_keys.id = used.id`.execute(db);
}
