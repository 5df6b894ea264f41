/**
 * Replaces the master key. No control may run meanwhile, as it would continue to seal with the old key; sandboxes keep
 * running. A kill at any step leaves files that the service starts with, and the next rotation continues from there:
 *
 *     file [old] ─► file [new, old] ─► all values sealed again, one transaction ─► file [new]
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { holdAt } from '../../lib/fault-directory.ts';
import { lockDirectories } from '../../lib/process/instance-lock.ts';
import type { ControlConfig } from '../control-config.ts';
import { holdDatabase } from '../db/hold-database.ts';
import { runMigrations } from '../schema/migrate.ts';
import {
  addMasterKey,
  forgetOlderKeys,
  MASTER_KEY_NAME,
  MasterKeyError,
  openMasterKeys,
} from '../secrets/master-key.ts';
import { resealAll, type Resealed } from './sealed-values.ts';
import { SecretBox } from '../secrets/secret-box.ts';

export interface Rotated extends Resealed {
  /** True if this finished an earlier rotation that was killed. */
  isContinued: boolean;
  /** Number of preview links that were revoked: they were signed with a key derived from the old one. */
  previews: number;
}

export async function rotateMasterKey(config: ControlConfig, log: Logger): Promise<Rotated> {
  const path = join(config.dataDir, MASTER_KEY_NAME);
  if (!existsSync(path)) throw new MasterKeyError(`there is no ${path}: no service has been started here`);
  await using stack = new AsyncDisposableStack();
  stack.use(await lockDirectories('control', config));
  const db = await holdDatabase(config, stack, log);
  await runMigrations(db, { log });
  const found = openMasterKeys(path);
  const isContinued = found.older.length > 0;
  const keys = isContinued ? found : addMasterKey(path);
  await holdAt('key.added');
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
