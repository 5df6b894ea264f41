/**
 * Binds every connection to the database that this process began with. A socket directory, a name or an address may
 * later lead to another server, with the keys and records of another installation. A connection with another id than
 * the first one is closed, and its query fails as if the database were unreachable. A replica has the id of its
 * primary; a database that a backup is restored into has its own.
 */
import type pg from 'pg';
import type { Logger } from 'pino';

const UNDEFINED_TABLE = '42P01';

/** Counts as an unreachable database (database-error.ts): the right one may come back. */
export class ForeignDatabaseError extends Error {
  readonly code = '57P03';

  constructor() {
    super('the database that answers is that of another installation');
    this.name = 'ForeignDatabaseError';
  }
}

export class InstallationGuard {
  readonly #log: Logger;
  /** Undefined until the first connection to a database that has an id, which migrations create. */
  #id: string | undefined;
  #isForeign = false;

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Checks a new connection. Call before any other use. Throws {@link ForeignDatabaseError}. */
  async check(client: pg.ClientBase): Promise<void> {
    const id = await findInstallationId(client);
    this.#id ??= id;
    const isForeign = id !== this.#id;
    // Logged once, since timers and callers try again and again.
    if (isForeign && !this.#isForeign)
      this.#log.error(
        { expected: this.#id, found: id ?? null },
        'the database that answers is that of another installation; nothing is served from it',
      );
    this.#isForeign = isForeign;
    if (isForeign) throw new ForeignDatabaseError();
  }
}

/** Returns undefined for a database that no service of this version has used. */
async function findInstallationId(client: pg.ClientBase): Promise<string | undefined> {
  try {
    const { rows } = await client.query<{ id: string }>('SELECT id FROM installation');
    return rows[0]?.id;
  } catch (error) {
    if (error instanceof Error && Reflect.get(error, 'code') === UNDEFINED_TABLE) return undefined;
    throw error;
  }
}
