import { loadConfig, type Config } from '../config/config.ts';
import { openDatabase, type Database } from '../control/db/database.ts';
import { reachDatabase } from '../control/db/reach-database.ts';
import { assertUpToDate } from '../control/schema/migrate.ts';
import { createLog } from '../lib/log.ts';
import { becomeServiceAccount } from '../service-account.ts';

/** Runs `work` with the database of control, whether or not the service runs. `name` is that of the command in the log. */
export async function withDatabase(
  name: string,
  work: (db: Database, config: Config) => Promise<string>,
): Promise<string> {
  const config = loadConfig();
  becomeServiceAccount(config);
  await using stack = new AsyncDisposableStack();
  const log = createLog(name, 'warn');
  const connection = await reachDatabase(config.control, stack, log);
  const db = stack.adopt(openDatabase(connection, log), (open) => open.destroy());
  await assertUpToDate(db);
  return await work(db, config);
}
