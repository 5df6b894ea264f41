/** Sums up the changes of migration-rows.ts. */
import { CHANGES, type Row, type Rows } from './migration-rows.ts';

/** Returns the rows of a database that a version made and used. */
export function rowsAt(version: string): Rows {
  const rows: Rows = {};
  for (const [name, change] of Object.entries(CHANGES)) {
    if (name > version) break;
    for (const [table, columns] of Object.entries(change.columns ?? {}))
      rows[table] = (rows[table] ?? []).map((row) =>
        Object.assign({}, row, typeof columns === 'function' ? columns(row) : columns),
      );
    for (const [table, renames] of Object.entries(change.renames ?? {}))
      rows[table] = (rows[table] ?? []).map((row) => rename(row, renames));
    for (const [table, drops] of Object.entries(change.drops ?? {}))
      rows[table] = (rows[table] ?? []).map((row) => without(row, drops));
    for (const [table, added] of Object.entries(change.adds ?? {}))
      rows[table] = [...(rows[table] ?? []), ...added];
  }
  return rows;
}

/** Returns the current name of a version's column; undefined when the column was dropped. */
export function currentName(version: string, table: string, column: string): string | undefined {
  let current = column;
  for (const [name, { renames, drops }] of Object.entries(CHANGES)) {
    if (name <= version) continue;
    current = renames?.[table]?.[current] ?? current;
    if (drops?.[table]?.includes(current) === true) return undefined;
  }
  return current;
}

function without(row: Row, columns: readonly string[]): Row {
  return Object.fromEntries(Object.entries(row).filter(([name]) => !columns.includes(name)));
}

function rename(row: Row, renames: Record<string, string>): Row {
  return Object.fromEntries(Object.entries(row).map(([name, value]) => [renames[name] ?? name, value]));
}
