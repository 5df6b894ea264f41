import { sql } from 'kysely';
import type { Logger } from 'pino';
import type { LoginSessions } from '../accounts/sign-in/login-sessions.ts';
import type { Database } from '../db/database.ts';

const WRITE_INTERVAL_MS = 60_000;

export interface KeyUsesParts {
  db: Database;
  sessions: Pick<LoginSessions, 'extendByKeys'>;
  log: Logger;
}

/**
 * Records when each API key was last used, and extends the sessions of those that belong to one. It collects the times
 * and writes them once a minute, outside requests.
 */
export class KeyUses implements AsyncDisposable {
  readonly #parts: KeyUsesParts;
  readonly #timer: NodeJS.Timeout;
  #usedAt = new Map<string, number>();
  #writing: Promise<void> = Promise.resolve();

  constructor(parts: KeyUsesParts, intervalMs = WRITE_INTERVAL_MS) {
    this.#parts = parts;
    this.#timer = setInterval(() => void this.write(), intervalMs);
  }

  note(apiKeyId: string): void {
    this.#usedAt.set(apiKeyId, Date.now());
  }

  /** Writes the collected times. A failed write loses them until the next use of the key. */
  write(): Promise<void> {
    const used = this.#usedAt;
    if (used.size === 0) return this.#writing;
    this.#usedAt = new Map();
    const { db, sessions, log } = this.#parts;
    this.#writing = this.#writing
      .then(() => writeUses(db, used))
      .then(() => sessions.extendByKeys(used))
      .catch((error: unknown) => log.warn({ err: error }, 'the last uses of API keys could not be written'));
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
  // Without a wait: the end of several sessions locks their keys in another order.
  await sql`
    UPDATE api_keys SET last_used_at = greatest(last_used_at, used.at)
    FROM (
      SELECT id, at FROM unnest(${ids}::text[], ${times}::bigint[]) AS uses (key_id, at)
      JOIN api_keys ON id = key_id
      FOR NO KEY UPDATE OF api_keys SKIP LOCKED
    ) AS used
    WHERE api_keys.id = used.id`.execute(db);
}
