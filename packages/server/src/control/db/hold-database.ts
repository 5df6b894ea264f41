import type { Logger } from 'pino';
import type { ControlConfig } from '../control-config.ts';
import { connectDatabase } from './connect-database.ts';
import { DatabaseLease } from './database-lease.ts';
import { openDatabase, type Database } from './database.ts';
import { InstallationGuard } from './installation-guard.ts';

/** Short, since the operator must stop another control on the database first. */
const PATIENCE_MS = 2_000;

/**
 * Opens the database for a command in place of the service: with its lease, without a statement deadline. `stack`
 * releases both.
 */
export async function holdDatabase(
  config: ControlConfig,
  stack: AsyncDisposableStack,
  log: Logger,
): Promise<Database> {
  const connection = await connectDatabase(config, stack, log);
  const guard = new InstallationGuard(log);
  stack.use(await DatabaseLease.acquire({ connection, guard, log, patienceMs: PATIENCE_MS }));
  return stack.adopt(openDatabase(connection, log, { deadlineMs: 0, guard }), (open) => open.destroy());
}
