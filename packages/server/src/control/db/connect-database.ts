import type { Logger } from 'pino';
import type pg from 'pg';
import type { ControlConfig } from '../control-config.ts';
import { startPostgresChild } from './postgres/postgres-child.ts';

/** Returns the connection to the operator's database, or to the service's own, which it starts and `stack` stops. */
export async function connectDatabase(
  config: ControlConfig,
  stack: AsyncDisposableStack,
  log: Logger,
): Promise<pg.PoolConfig> {
  if (config.databaseUrl !== undefined) return { connectionString: config.databaseUrl };
  const { postgresBin, dataDir, runDir } = config;
  return stack.use(await startPostgresChild({ postgresBin, dataDir, runDir, log })).connection;
}
