/** Control's database for a command beside the service, which may run meanwhile. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import pg from 'pg';
import type { Logger } from 'pino';
import { lockDirectories } from '../../lib/instance-lock.ts';
import type { ControlConfig } from '../control-config.ts';
import { connectDatabase } from './connect-database.ts';
import { findPostgresChild, POSTGRES_DIRECTORY } from './postgres-child.ts';

const CONNECT_DEADLINE_MS = 5_000;

/** Its PostgreSQL is started for as long as `stack` lives if no control runs. Throws `not_found` if there never was one. */
export async function reachDatabase(
  config: ControlConfig,
  stack: AsyncDisposableStack,
  log: Logger,
): Promise<pg.PoolConfig> {
  if (config.databaseUrl !== undefined) return { connectionString: config.databaseUrl };
  const running = findPostgresChild(config.runDir);
  if (running !== undefined && (await answers(running))) return running;
  if (!existsSync(join(config.dataDir, POSTGRES_DIRECTORY)))
    throw new AppError(
      'not_found',
      `there is no database in ${config.dataDir}: no service has been started here`,
    );
  stack.use(await lockDirectories('control', config));
  return await connectDatabase(config, stack, log);
}

async function answers(connection: pg.PoolConfig): Promise<boolean> {
  const client = new pg.Client({ ...connection, connectionTimeoutMillis: CONNECT_DEADLINE_MS });
  client.on('error', () => undefined);
  try {
    await client.connect();
    return true;
  } catch {
    return false;
  } finally {
    await client.end();
  }
}
