/** Fills, reads and compares databases with the rows of migration-rows.ts. */
import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { listTables } from '../../backup/backup-tables.ts';
import type { Database } from '../../db/database.ts';
import { currentName } from './migration-history.ts';
import type { Rows } from './migration-rows.ts';

/** Columns by name, as PostgreSQL writes them. */
type Texts = Record<string, string | null>;
export type Contents = Map<string, Texts[]>;

export async function fillDatabase(db: Database, rows: Rows): Promise<void> {
  for (const { name } of await listTables(db)) {
    for (const row of rows[name] ?? []) {
      const columns = sql.join(Object.keys(row).map((column) => sql.ref(column)));
      const table = sql.table(name);
      await sql`INSERT INTO ${table} (${columns})
        SELECT ${columns} FROM json_populate_record(NULL::${table}, ${JSON.stringify(row)}::json)`.execute(
        db,
      );
    }
  }
}

/** Reads every value as PostgreSQL writes it, so that none is rounded here. */
export async function readDatabase(db: Database): Promise<Contents> {
  const found = new Map<string, Texts[]>();
  for (const { name } of await listTables(db)) {
    const { rows } = await sql<{ row: Texts }>`
      SELECT (SELECT json_object_agg(key, value) FROM json_each_text(row_to_json(whole_row))) AS row
      FROM ${sql.table(name)} AS whole_row`.execute(db);
    found.set(
      name,
      rows.map(({ row }) => row),
    );
  }
  return found;
}

/** Fails unless every row of `then` is in `now`, with all its values except those of dropped columns. */
export function assertKept(then: Contents, now: Contents, version: string): void {
  for (const [table, rows] of then) {
    const left = [...(now.get(table) ?? [])];
    for (const row of rows) {
      const wanted = Object.entries(row).flatMap(([column, value]) => {
        const name = currentName(version, table, column);
        return name === undefined ? [] : [[name, value] as const];
      });
      const index = left.findIndex((kept) => wanted.every(([name, value]) => kept[name] === value));
      assert.notEqual(index, -1, `${version}: ${table} lost ${JSON.stringify(row)}`);
      left.splice(index, 1);
    }
  }
}
