/**
 * Backs up control: its database, whether its own or a shared one, and its master key. The service may run meanwhile.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import type { ControlConfig } from '../control-config.ts';
import { openDatabase } from '../db/database.ts';
import { reachDatabase } from '../db/reach-database.ts';
import { MASTER_KEY_NAME } from '../secrets/master-key.ts';
import type { NewBackup } from './backup-files.ts';
import { BackupError } from './backup-format.ts';
import { asOfOneMoment, dumpDatabase } from './dump-database.ts';

/** Resolves with the size of the backed-up database in bytes, compressed. */
export async function takeBackup(config: ControlConfig, backup: NewBackup, log: Logger): Promise<number> {
  const keyPath = join(config.dataDir, MASTER_KEY_NAME);
  if (!existsSync(keyPath)) throw new BackupError(`there is no ${keyPath}: no service has been started here`);
  await using stack = new AsyncDisposableStack();
  const connection = await reachDatabase(config, stack, log);
  const db = stack.adopt(openDatabase(connection, log, { deadlineMs: 0 }), (open) => open.destroy());
  const bytes = await asOfOneMoment(db, (transaction) =>
    backup.writeDatabase(dumpDatabase(transaction, config.version)),
  );
  backup.writeKey(readFileSync(keyPath));
  return bytes;
}
