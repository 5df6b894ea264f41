import { sql, type RawBuilder } from 'kysely';
import type { Leadership } from './leadership.ts';
import { isAliveSql } from './live-controls.ts';

/** This control, as far as its work depends on which others there are. */
export interface Ownership extends Leadership {
  /** Named in the rows of what it does: `control_id`. */
  readonly id: string;
}

/**
 * Whether this control takes up work that a row names in a column: its own, and if it leads, also that of controls that are gone.
 * The work of another control that is alive is under way.
 */
export function isUpToSql(column: string, { id, isLeading }: Ownership): RawBuilder<boolean> {
  return sql<boolean>`(
    ${sql.ref(column)} IS NOT DISTINCT FROM ${id} OR (${isLeading} AND NOT ${isAliveSql(column)}))`;
}
