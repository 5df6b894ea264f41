/** The connection pool, and the query builder on it. */
import { callbackify } from 'node:util';
import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import type { Logger } from 'pino';
import { InstallationGuard } from './installation-guard.ts';
import type { Tables } from '../schema/tables.ts';
import { stretched } from '../../lib/waiting/deadline.ts';

export type Database = Kysely<Tables>;

const POOL_SIZE = 10;
const CONNECT_DEADLINE_MS = 5_000;
/** All statements are small, so callers learn early that the database does not answer. */
const STATEMENT_DEADLINE_MS = 5_000;

export interface DatabaseOptions {
  /** A statement that takes longer fails; 0 means no deadline. */
  deadlineMs?: number;
  /** Throws when no connection may be used. */
  assertUsable?: () => void;
  /** Shared by all users of one database; without it the pool's connections are compared with each other. */
  guard?: InstallationGuard;
  /** Gets the pool when it is open, to count its connections. */
  onPool?: (pool: PoolCounts) => void;
}

export type PoolCounts = Readonly<Pick<pg.Pool, 'totalCount' | 'idleCount' | 'waitingCount'>>;

/** Opens a pool that connects when first used and again after a loss. Dispose with `destroy()`. */
export function openDatabase(
  connection: pg.PoolConfig,
  log: Logger,
  {
    deadlineMs = stretched(STATEMENT_DEADLINE_MS),
    assertUsable = () => undefined,
    guard = new InstallationGuard(log),
    onPool = () => undefined,
  }: DatabaseOptions = {},
): Database {
  const pool = new pg.Pool({
    ...connection,
    max: POOL_SIZE,
    connectionTimeoutMillis: stretched(CONNECT_DEADLINE_MS),
    statement_timeout: deadlineMs,
    query_timeout: deadlineMs === 0 ? 0 : deadlineMs + 1_000,
    idle_in_transaction_session_timeout: deadlineMs,
    types: parseTypes(),
    verify: callbackify((client: pg.PoolClient) => guard.check(client)),
  });
  pool.on('error', (error) => log.warn({ err: error }, 'an idle database connection was lost'));
  // The pool does not listen to a connection in use. Between two statements nothing else does: an error would end
  // control.
  pool.on('connect', (client) =>
    client.on('error', (error) => log.debug({ err: error }, 'a database connection was lost')),
  );
  onPool(pool);
  const guarded = {
    connect: async (): Promise<pg.PoolClient> => {
      assertUsable();
      const client = await pool.connect();
      try {
        // The wait for a connection may have outlasted the lease.
        assertUsable();
      } catch (error) {
        client.release();
        throw error;
      }
      return client;
    },
    end: () => pool.end(),
    options: pool.options,
  };
  return new Kysely<Tables>({ dialect: new PostgresDialect({ pool: guarded }) });
}

/**
 * Parses bigints as numbers. All in the tables are times or counts below 2^53; a larger one throws, to avoid rounding.
 */
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
