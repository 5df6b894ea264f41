import type { Logger } from 'pino';
import type pg from 'pg';
import type { ControlConfig } from '../control-config.ts';
import { startPostgresChild } from './postgres/postgres-child.ts';

/** Where the database is: the operator's, or the service's own, which `stack` stops again. */
export async function connectDatabase(
  config: ControlConfig,
  stack: AsyncDisposableStack,
  log: Logger,
): Promise<pg.PoolConfig> {
  if (config.databaseUrl !== undefined) return { connectionString: config.databaseUrl };
  const { postgresBin, dataDir, runDir } = config;
  return stack.use(await startPostgresChild({ postgresBin, dataDir, runDir, log })).connection;
}
