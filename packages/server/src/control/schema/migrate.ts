/** Brings the schema of a database up to date, or to what an earlier version made of it. */
import { sql } from 'kysely';
import { Migrator } from 'kysely/migration';
import type pg from 'pg';
import type { Logger } from 'pino';
import { openDatabase, type Database } from '../db/database.ts';
import { InstallationGuard } from '../db/installation-guard.ts';
import { MIGRATIONS } from './migrations.ts';

export class SchemaError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'SchemaError';
  }
}

/**
 * Brings the schema up to date. Safe when several processes do it at once: one does, the others wait.
 * Throws {@link SchemaError} for a database that a newer version has used; nothing is changed then.
 */
export async function migrateDatabase(
  connection: pg.PoolConfig,
  log: Logger,
  guard = new InstallationGuard(log),
): Promise<void> {
  // Migrations of large tables take their time, and so does waiting for another process that runs them.
  const db = openDatabase(connection, log, { deadlineMs: 0, guard });
  try {
    await runMigrations(db, { log });
  } finally {
    await db.destroy();
  }
}

/** In a transaction all or none are done; `target` is the last one to do. */
export async function runMigrations(
  db: Database,
  { log, target }: { log: Logger; target?: string },
): Promise<void> {
  assertNotNewer(await listAppliedMigrations(db));
  const migrator = new Migrator({ db, provider: { getMigrations: () => Promise.resolve(MIGRATIONS) } });
  const { error, results } = await (target === undefined
    ? migrator.migrateToLatest()
    : migrator.migrateTo(target));
  for (const result of results ?? [])
    log.info({ migration: result.migrationName }, `migration: ${result.status}`);
  if (error !== undefined) throw new SchemaError('the database schema cannot be brought up to date', error);
}

/** Names of the migrations that a database has had, in their order; none for an empty one. */
export async function listAppliedMigrations(db: Database): Promise<string[]> {
  const { rows: tables } = await sql<{ found: boolean }>`
    SELECT to_regclass('kysely_migration') IS NOT NULL AS found`.execute(db);
  if (tables[0]?.found !== true) return [];
  const { rows } = await sql<{ name: string }>`SELECT name FROM kysely_migration ORDER BY name`.execute(db);
  return rows.map((row) => row.name);
}

/** For who reads and writes beside the service. Throws `SchemaError` unless the schema is that of this version. */
export async function assertUpToDate(db: Database): Promise<void> {
  const applied = await listAppliedMigrations(db);
  assertNotNewer(applied);
  if (applied.length < Object.keys(MIGRATIONS).length)
    throw new SchemaError('the database is not up to date: start this version of the service once');
}

function assertNotNewer(applied: readonly string[]): void {
  const unknown = applied.find((name) => !Object.hasOwn(MIGRATIONS, name));
  if (unknown === undefined) return;
  throw new SchemaError(
    `a newer version of Coppice has used this database (its migration ${unknown} is unknown here): ` +
      'install that version again, or restore a backup of before its first start',
  );
}
