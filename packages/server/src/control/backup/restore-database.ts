/** Restores a backup into an empty database: the schema it was taken with, its rows, then all later migrations. */
import { sql } from 'kysely';
import type { Logger } from 'pino';
import type { Database } from '../db/database.ts';
import { skipIds } from '../events/skip-ids.ts';
import { runMigrations } from '../schema/migrate.ts';
import { MIGRATIONS } from '../schema/migrations.ts';
import { BackupError, parseHead, parseLine, type BackupHead } from './backup-format.ts';
import { advanceSequences, listTables, type BackupTable } from './backup-tables.ts';

const ROWS_AT_ONCE = 500;
const CHARACTERS_AT_ONCE = 4 << 20;

export interface Restored {
  head: BackupHead;
  rows: number;
}

/** Restores everything or nothing. Throws {@link BackupError} for errors that the operator can resolve. */
export async function restoreDatabase(
  db: Database,
  lines: AsyncIterable<string>,
  log: Logger,
): Promise<Restored> {
  return db.transaction().execute(async (transaction) => {
    await assertEmpty(transaction);
    const reader = lines[Symbol.asyncIterator]();
    const first = await reader.next();
    const head = parseHead(first.done === true ? undefined : first.value);
    await makeSchema(transaction, head, log);
    const tables = await listTables(transaction);
    const rows = await insertAll(transaction, tables, { [Symbol.asyncIterator]: () => reader });
    for (const table of tables) await advanceSequences(transaction, table);
    // PostgreSQL alters no table with rows whose foreign keys it has yet to check.
    await sql`SET CONSTRAINTS ALL IMMEDIATE`.execute(transaction);
    await runMigrations(transaction, { log });
    await skipIds(transaction, Date.now());
    // None of them uses this database: what they had is free at once.
    await transaction.updateTable('controls').set({ is_fenced: true }).execute();
    return { head, rows };
  });
}

async function assertEmpty(transaction: Database): Promise<void> {
  const { rows } = await sql<{ relname: string }>`
    SELECT relname FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' LIMIT 1`.execute(transaction);
  const [found] = rows;
  if (found === undefined) return;
  throw new BackupError(
    `the database is in use (it has a table ${found.relname}), and a restore overwrites nothing: ` +
      'move the directory control/postgres of the data directory away, or make an empty database for DATABASE_URL',
  );
}

async function makeSchema(transaction: Database, head: BackupHead, log: Logger): Promise<void> {
  if (!Object.hasOwn(MIGRATIONS, head.migration)) {
    throw new BackupError(
      `the backup was taken by Coppice ${head.service}, which is newer (its migration ${head.migration} is unknown ` +
        'here): install that version to restore it',
    );
  }
  await runMigrations(transaction, { log, target: head.migration });
}

/** Inserts all rows and returns their number. Throws {@link BackupError} unless it equals that in the last line. */
async function insertAll(
  transaction: Database,
  tables: readonly BackupTable[],
  lines: AsyncIterable<string>,
): Promise<number> {
  const byName = new Map(tables.map((table) => [table.name, table]));
  let batch = new Batch();
  let count = 0;
  for await (const line of lines) {
    const parsed = parseLine(line);
    if ('end' in parsed) {
      await batch.insert(transaction);
      if (parsed.end.rows === count) return count;
      throw new BackupError(`the backup lacks rows: it has ${count} of ${parsed.end.rows}; take another one`);
    }
    const table = byName.get(parsed.table);
    if (table === undefined) throw new BackupError(`the backup has rows of an unknown table ${parsed.table}`);
    if (!batch.takes(table)) {
      await batch.insert(transaction);
      batch = new Batch();
    }
    batch.add(table, parsed.row);
    count += 1;
  }
  throw new BackupError('the backup breaks off before its end; take another one');
}

/** Rows of one table that are inserted in one statement. */
class Batch {
  #table: BackupTable | undefined;
  readonly #rows: string[] = [];
  #characters = 0;

  takes(table: BackupTable): boolean {
    if (this.#table === undefined) return true;
    return (
      this.#table.name === table.name &&
      this.#rows.length < ROWS_AT_ONCE &&
      this.#characters < CHARACTERS_AT_ONCE
    );
  }

  add(table: BackupTable, row: string): void {
    this.#table = table;
    this.#rows.push(row);
    this.#characters += row.length;
  }

  async insert(transaction: Database): Promise<void> {
    if (this.#table === undefined) return;
    const table = sql.table(this.#table.name);
    const columns = sql.join(this.#table.columns.map((column) => sql.ref(column)));
    await sql`
      INSERT INTO ${table} (${columns}) OVERRIDING SYSTEM VALUE
      SELECT ${columns} FROM json_populate_recordset(NULL::${table}, ${`[${this.#rows.join(',')}]`}::json)`.execute(
      transaction,
    );
  }
}
