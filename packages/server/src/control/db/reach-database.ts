/** Connects a command to control's database, whether or not the service runs. */
import { existsSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import type pg from 'pg';
import type { Logger } from 'pino';
import { lockDirectories } from '../../lib/process/instance-lock.ts';
import type { ControlConfig } from '../control-config.ts';
import { connectDatabase } from './connect-database.ts';
import { findDataDirectory, findPostgresChild, POSTGRES_DIRECTORY } from './postgres/postgres-child.ts';

/**
 * Returns the connection. If no control runs, starts its PostgreSQL, which `stack` stops. Throws `not_found` if no
 * service was ever started, `conflicting_options` for the PostgreSQL of another installation.
 */
export async function reachDatabase(
  config: ControlConfig,
  stack: AsyncDisposableStack,
  log: Logger,
): Promise<pg.PoolConfig> {
  if (config.databaseUrl !== undefined) return { connectionString: config.databaseUrl };
  const directory = join(await findRealPath(config.dataDir), POSTGRES_DIRECTORY);
  const running = findPostgresChild(config.runDir);
  if (running !== undefined && (await isOurs(running, directory))) return running;
  if (!existsSync(directory))
    throw new AppError(
      'not_found',
      `there is no database in ${config.dataDir}: no service has been started here`,
    );
  stack.use(await lockDirectories('control', config));
  return await connectDatabase(config, stack, log);
}

/** Returns false if it does not answer: it may be about to stop. */
async function isOurs(connection: pg.PoolConfig, directory: string): Promise<boolean> {
  const found = await findDataDirectory(connection).catch(() => undefined);
  if (found === undefined) return false;
  if (found === directory) return true;
  throw new AppError(
    'conflicting_options',
    `the PostgreSQL in ${String(connection.host)} is that of another installation (${found}): leave COPPICE_RUN_DIR unset, ` +
      'or set it to the value that the service has',
  );
}

/** Returns the path in the form that PostgreSQL was started with; an absent path stays as it is. */
async function findRealPath(path: string): Promise<string> {
  return existsSync(path) ? realpath(path) : path;
}
