/** Brings the schema of a database up to date, or to that of an earlier version. */
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
 * Brings the schema up to date. Several processes may call it at once: one migrates, the others wait. Throws
 * {@link SchemaError}, and changes nothing, for a database that a newer version has used.
 */
export async function migrateDatabase(
  connection: pg.PoolConfig,
  log: Logger,
  guard = new InstallationGuard(log),
): Promise<void> {
  // No deadline: migrations of large tables take long, and so does waiting for another process that runs them.
  const db = openDatabase(connection, log, { deadlineMs: 0, guard });
  try {
    await runMigrations(db, { log });
  } finally {
    await db.destroy();
  }
}

/** Runs the migrations up to `target`, by default all. Inside a transaction, all or none of them are done. */
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

/** Lists the migrations that a database has had, in their order; none for an empty one. */
export async function listAppliedMigrations(db: Database): Promise<string[]> {
  const { rows: tables } = await sql<{ found: boolean }>`
    SELECT to_regclass('kysely_migration') IS NOT NULL AS found`.execute(db);
  if (tables[0]?.found !== true) return [];
  const { rows } = await sql<{ name: string }>`SELECT name FROM kysely_migration ORDER BY name`.execute(db);
  return rows.map((row) => row.name);
}

/** Throws {@link SchemaError} unless the schema is that of this version. For commands alongside the service. */
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
      'install that version again, or restore a backup from before its first start',
  );
}
