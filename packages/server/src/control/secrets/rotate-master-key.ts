/**
 * Another master key in the place of the one that there is. Only while no control runs, which would go on sealing with the
 * old one; sandboxes run on meanwhile. Killed at any step it leaves what the service starts with, and is gone on with when
 * it is asked for again:
 *
 *     file [old] ─► file [new, old] ─► all sealed values anew, one transaction ─► file [new]
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { holdAt } from '../../lib/fault-directory.ts';
import { lockInstance } from '../../lib/instance-lock.ts';
import type { ControlConfig } from '../control-config.ts';
import { connectDatabase } from '../db/connect-database.ts';
import { DatabaseLease } from '../db/database-lease.ts';
import { openDatabase } from '../db/database.ts';
import { migrateDatabase } from '../db/migrate.ts';
import {
  addMasterKey,
  forgetOlderKeys,
  MASTER_KEY_NAME,
  MasterKeyError,
  openMasterKeys,
} from './master-key.ts';
import { resealAll, type Resealed } from './sealed-values.ts';
import { SecretBox } from './secret-box.ts';

/** Another control on the database is to be stopped first. */
const PATIENCE_MS = 2_000;

export interface Rotated extends Resealed {
  /** A rotation that was begun before and killed. */
  isContinued: boolean;
  /** Preview links that are good no longer: they were signed with a key of the old one. */
  previews: number;
}

export async function rotateMasterKey(config: ControlConfig, log: Logger): Promise<Rotated> {
  const path = join(config.dataDir, MASTER_KEY_NAME);
  if (!existsSync(path)) throw new MasterKeyError(`there is no ${path}: no service has been started here`);
  await using stack = new AsyncDisposableStack();
  stack.use(await lockInstance('control', config.dataDir));
  const connection = await connectDatabase(config, stack, log);
  stack.use(await DatabaseLease.acquire({ connection, log, patienceMs: PATIENCE_MS }));
  await migrateDatabase(connection, log);
  const isContinued = openMasterKeys(path).older.length > 0;
  const keys = isContinued ? openMasterKeys(path) : addMasterKey(path);
  await holdAt('key.added');
  const db = stack.adopt(openDatabase(connection, log, { deadlineMs: 0 }), (open) => open.destroy());
  const rotated = await db.transaction().execute(async (transaction) => {
    const resealed = await resealAll(transaction, new SecretBox(keys.current, keys.older));
    const { numUpdatedRows } = await transaction
      .updateTable('previews')
      .set({ revoked_at: Date.now() })
      .where('revoked_at', 'is', null)
      .executeTakeFirst();
    return { ...resealed, previews: Number(numUpdatedRows) };
  });
  await holdAt('key.resealed');
  forgetOlderKeys(path);
  return { ...rotated, isContinued };
}
