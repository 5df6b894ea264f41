/** Writes the lines of a backup (backup-format.ts), all as of one moment, while others read and write. */
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { listAppliedMigrations } from '../schema/migrate.ts';
import { BackupError, formatRow, FORMAT, FORMAT_VERSION, type BackupHead } from './backup-format.ts';
import { listTables } from './backup-tables.ts';

const ROWS_AT_ONCE = 500;

/** Yields the lines of a backup. Call inside a transaction of {@link asOfOneMoment}. Throws {@link BackupError}. */
export async function* dumpDatabase(transaction: Database, service: string): AsyncGenerator<string> {
  const migration = (await listAppliedMigrations(transaction)).at(-1);
  if (migration === undefined)
    throw new BackupError('the database is empty: no service has been started on it');
  const created_at = new Date().toISOString();
  const head: BackupHead = { format: FORMAT, version: FORMAT_VERSION, service, migration, created_at };
  yield `${JSON.stringify(head)}\n`;
  let count = 0;
  for (const { name } of await listTables(transaction)) {
    for await (const rows of readTable(transaction, name)) {
      count += rows.length;
      yield rows.map((row) => formatRow(name, row)).join('');
    }
  }
  yield `${JSON.stringify({ rows: count })}\n`;
}

/** Runs `work` in a read-only transaction that sees the database as of one moment. */
export async function asOfOneMoment<T>(
  db: Database,
  work: (transaction: Database) => Promise<T>,
): Promise<T> {
  return db
    .transaction()
    .setIsolationLevel('repeatable read')
    .setAccessMode('read only')
    .execute(async (transaction) => {
      // Formats that every version reads back, whatever the server's settings are.
      await sql`SET LOCAL bytea_output = 'hex'`.execute(transaction);
      await sql`SET LOCAL extra_float_digits = 1`.execute(transaction);
      return work(transaction);
    });
}

/**
 * Yields a table's rows as JSON. Raw line breaks occur only between tokens of json columns: strings have them as \n.
 */
async function* readTable(transaction: Database, name: string): AsyncGenerator<string[]> {
  await sql`
    DECLARE backup_rows NO SCROLL CURSOR FOR
    SELECT replace(row_to_json(whole_row)::text, E'\\n', ' ') AS row FROM ${sql.table(name)} AS whole_row`.execute(
    transaction,
  );
  for (;;) {
    const { rows } = await sql<{ row: string }>`
      FETCH ${sql.lit(ROWS_AT_ONCE)} FROM backup_rows`.execute(transaction);
    if (rows.length === 0) break;
    yield rows.map(({ row }) => row);
  }
  await sql`CLOSE backup_rows`.execute(transaction);
}
