/**
 * Keeps every connection to the database that this process began with. A socket directory, a name or an address may lead
 * to another server tomorrow, with the keys and records of another installation: a connection that shows another id than
 * the first one is thrown away, and its query fails as if the database were away. A replica has the id of its primary; a
 * database that a backup is restored into has one of its own.
 */
import type pg from 'pg';
import type { Logger } from 'pino';

const UNDEFINED_TABLE = '42P01';

/** Reads as a database that is away (database-error.ts): the right one may be back later. */
export class ForeignDatabaseError extends Error {
  readonly code = '57P03';

  constructor() {
    super('the database that answers is that of another installation');
    this.name = 'ForeignDatabaseError';
  }
}

export class InstallationGuard {
  readonly #log: Logger;
  /** Unknown until the first connection to a database that has one: migrations make it. */
  #id: string | undefined;
  #isForeign = false;

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Of a new connection, before it is used otherwise. Throws {@link ForeignDatabaseError}. */
  async check(client: pg.ClientBase): Promise<void> {
    const id = await findInstallationId(client);
    this.#id ??= id;
    const isForeign = id !== this.#id;
    // Once: timers and callers try again and again.
    if (isForeign && !this.#isForeign)
      this.#log.error(
        { expected: this.#id, found: id ?? null },
        'the database that answers is that of another installation; nothing is served from it',
      );
    this.#isForeign = isForeign;
    if (isForeign) throw new ForeignDatabaseError();
  }
}

/** Undefined for a database that no service of this version has used. */
async function findInstallationId(client: pg.ClientBase): Promise<string | undefined> {
  try {
    const { rows } = await client.query<{ id: string }>('SELECT id FROM installation');
    return rows[0]?.id;
  } catch (error) {
    if (error instanceof Error && Reflect.get(error, 'code') === UNDEFINED_TABLE) return undefined;
    throw error;
  }
}
