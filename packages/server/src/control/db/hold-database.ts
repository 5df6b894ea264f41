import type { Logger } from 'pino';
import type { ControlConfig } from '../control-config.ts';
import { connectDatabase } from './connect-database.ts';
import { DatabaseLease } from './database-lease.ts';
import { openDatabase, type Database } from './database.ts';
import { InstallationGuard } from './installation-guard.ts';

/** Another control on the database is to be stopped first. */
const PATIENCE_MS = 2_000;

/** For a command in the place of the service: with its lease, and as long as a statement takes. `stack` lets go again. */
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
