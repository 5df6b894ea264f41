/** The tables of a database, read from its schema: backups need no list of tables that must be maintained. */
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { invariant } from '../../lib/invariant.ts';

export interface BackupTable {
  name: string;
  /** Without generated columns. */
  columns: string[];
}

interface FoundTable extends BackupTable {
  /** Tables that its rows refer to. */
  needs: string[];
}

/**
 * Lists all tables but the migrator's own and that of the database's id, each after those that its rows refer to. A
 * database that a backup is restored into keeps the id that its own migrations made: the original database may still be
 * in use.
 */
export async function listTables(db: Database): Promise<BackupTable[]> {
  const { rows } = await sql<FoundTable>`
    SELECT c.relname AS name,
      ARRAY(SELECT attname::text FROM pg_attribute
        WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
        ORDER BY attnum) AS columns,
      ARRAY(SELECT DISTINCT f.relname::text FROM pg_constraint k JOIN pg_class f ON f.oid = k.confrelid
        WHERE k.conrelid = c.oid AND k.contype = 'f' AND f.oid <> c.oid) AS needs
    FROM pg_class c
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
      AND c.relname NOT LIKE 'kysely\\_%' AND c.relname <> 'installation'
    ORDER BY c.relname`.execute(db);
  return sortByNeed(rows);
}

function sortByNeed(tables: readonly FoundTable[]): BackupTable[] {
  const sorted = new Map<string, BackupTable>();
  while (sorted.size < tables.length) {
    const ready = tables.filter(
      ({ name, needs }) => !sorted.has(name) && needs.every((need) => sorted.has(need)),
    );
    invariant(ready.length > 0, 'tables refer to each other in a circle');
    for (const { name, columns } of ready) sorted.set(name, { name, columns });
  }
  return [...sorted.values()];
}

/** Advances a table's sequences past the inserted rows. */
export async function advanceSequences(db: Database, { name, columns }: BackupTable): Promise<void> {
  const { rows } = await sql<{ column: string; sequence: string | null }>`
    SELECT name AS column, pg_get_serial_sequence(quote_ident(${name}), name) AS sequence
    FROM unnest(${columns}::text[]) AS name`.execute(db);
  for (const { column, sequence } of rows) {
    if (sequence === null) continue;
    await sql`
      SELECT setval(${sequence}::regclass, (SELECT max(${sql.ref(column)}) FROM ${sql.table(name)}))`.execute(
      db,
    );
  }
}
