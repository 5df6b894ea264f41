/** The connection pool, the query builder on it, and the migrations. */
import { AppError } from '@coppice/contract';
import { Kysely, PostgresDialect } from 'kysely';
import { Migrator } from 'kysely/migration';
import pg from 'pg';
import type { Logger } from 'pino';
import { MIGRATIONS } from './migrations.ts';
import type { Tables } from './tables.ts';

export type Database = Kysely<Tables>;

const POOL_SIZE = 10;
const CONNECT_DEADLINE_MS = 5_000;
/** All statements are small: a caller should rather hear early that the database does not answer. */
const STATEMENT_DEADLINE_MS = 5_000;

/** A pool on the database, connecting when first used and again after a loss. Dispose with `destroy()`. */
export function openDatabase(connection: pg.PoolConfig, log: Logger): Database {
  const pool = new pg.Pool({
    ...connection,
    max: POOL_SIZE,
    connectionTimeoutMillis: CONNECT_DEADLINE_MS,
    statement_timeout: STATEMENT_DEADLINE_MS,
    query_timeout: STATEMENT_DEADLINE_MS + 1_000,
    idle_in_transaction_session_timeout: STATEMENT_DEADLINE_MS,
    types: parseTypes(),
  });
  pool.on('error', (error) => log.warn({ err: error }, 'an idle database connection was lost'));
  // The pool does not listen to one that is lent out, and between two statements nobody else does: it would end control.
  pool.on('connect', (client) =>
    client.on('error', (error) => log.debug({ err: error }, 'a database connection was lost')),
  );
  return new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });
}

/** Brings the schema up to date. Safe when several processes do it at once: one does, the others wait. */
export async function migrateDatabase(db: Database, log: Logger): Promise<void> {
  const migrator = new Migrator({ db, provider: { getMigrations: () => Promise.resolve(MIGRATIONS) } });
  const { error, results } = await migrator.migrateToLatest();
  for (const result of results ?? [])
    log.info({ migration: result.migrationName }, `migration: ${result.status}`);
  if (error !== undefined) {
    throw new Error('the database schema cannot be brought up to date; was it used by a newer version?', {
      cause: error,
    });
  }
}

/** Throws AppError `unavailable` when the database does not answer. */
export async function pingDatabase(db: Database): Promise<void> {
  try {
    await db.selectFrom('organizations').select('id').limit(1).execute();
  } catch (error) {
    throw new AppError('unavailable', 'the database does not answer', { cause: error });
  }
}

/** Every bigint in the tables is a time or a count below 2^53; one that is not would be silently rounded. */
function parseTypes(): pg.TypeOverrides {
  const types = new pg.TypeOverrides();
  types.setTypeParser(pg.types.builtins.INT8, parseInt8);
  return types;
}

function parseInt8(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError(`bigint ${text} is beyond 2^53`);
  return value;
}
