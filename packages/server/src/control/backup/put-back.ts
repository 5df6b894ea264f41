/** Restores a backup: the master key into the data directory, the rows into an empty database. It replaces nothing. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { writeDurably } from '../../lib/files/durable-file.ts';
import { lockDirectories } from '../../lib/process/instance-lock.ts';
import type { ControlConfig } from '../control-config.ts';
import { holdDatabase } from '../db/hold-database.ts';
import { MASTER_KEY_NAME } from '../secrets/master-key.ts';
import type { KeptBackup } from './backup-files.ts';
import { BackupError } from './backup-format.ts';
import { restoreDatabase, type Restored } from './restore-database.ts';

export interface PutBack extends Restored {
  /**
   * Whether there is a master key now. Without one, the next start creates a key that opens no secret of the backup.
   */
  hasKey: boolean;
}

/** Restores a backup. Throws while a service runs on the data directory or the database. */
export async function putBack(config: ControlConfig, backup: KeptBackup, log: Logger): Promise<PutBack> {
  await using stack = new AsyncDisposableStack();
  stack.use(await lockDirectories('control', config));
  const hasKey = putKeyBack(join(config.dataDir, MASTER_KEY_NAME), backup.key);
  const db = await holdDatabase(config, stack, log);
  return { ...(await restoreDatabase(db, backup.readDatabase(), log)), hasKey };
}

function putKeyBack(path: string, key: Buffer | undefined): boolean {
  const present = existsSync(path) ? readFileSync(path) : undefined;
  if (key === undefined) return present !== undefined;
  if (present !== undefined && !present.equals(key))
    throw new BackupError(`${path} is another key than that of the backup: move it away`);
  if (present === undefined) writeDurably(path, key);
  return true;
}
