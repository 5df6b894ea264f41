/** Descent of sandboxes by forks and snapshots, in SQL. */
import { MAX_TREE_NODES, type SandboxTree, type SandboxTreeNode } from '@coppice/contract';
import { sql, type RawBuilder } from 'kysely';
import { isWithinSql, type Reach } from '../../accounts/organizations/reach.ts';
import type { Database } from '../../db/database.ts';
import { toTimestamp } from '../../time/timestamp.ts';
import type { SandboxRow } from './sandbox-tables.ts';

type Node = Pick<SandboxRow, 'id' | 'status' | 'parent_id' | 'created_at' | 'ended_at'>;

export class FamilyStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Returns whether the sandbox `id` is `ancestorId` or descends from it. */
  async isOrDescends(reach: Reach, id: string, ancestorId: string): Promise<boolean> {
    const { rows } = await sql<{ found: boolean }>`
      ${ancestorsOf(id, reach)}
      SELECT EXISTS (SELECT FROM ancestors WHERE id = ${ancestorId}) AS found`.execute(this.#db);
    return rows[0]?.found === true;
  }

  /** Returns undefined if there is no such sandbox within reach. */
  async findTree(reach: Reach, id: string): Promise<SandboxTree | undefined> {
    const rootId = await this.#findRoot(reach, id);
    if (rootId === undefined) return undefined;
    // PostgreSQL evaluates only as much of the recursion as `nearest` reads, and sorts only that. LATERAL keeps the
    // order: one generation after the other, the children of each sandbox in the order of the index.
    const { rows } = await sql<Node>`
      WITH RECURSIVE family AS (
        SELECT id, status, parent_id, created_at, ended_at FROM sandboxes WHERE id = ${rootId}
        UNION ALL
        SELECT child.* FROM family CROSS JOIN LATERAL (
          SELECT id, status, parent_id, created_at, ended_at FROM sandboxes
          WHERE parent_id = family.id AND ${isWithinSql(reach, 'sandboxes')}
          ORDER BY created_at, id LIMIT ${MAX_TREE_NODES + 1}) child
      ),
      nearest AS (SELECT * FROM family LIMIT ${MAX_TREE_NODES + 1})
      SELECT * FROM nearest ORDER BY created_at, id`.execute(this.#db);
    const nodes = rows.slice(0, MAX_TREE_NODES).map(buildNode);
    return { root_id: rootId, nodes, truncated: rows.length > nodes.length };
  }

  async #findRoot(reach: Reach, id: string): Promise<string | undefined> {
    const { rows } = await sql<{ id: string }>`
      ${ancestorsOf(id, reach)}
      SELECT id FROM ancestors ORDER BY distance DESC LIMIT 1`.execute(this.#db);
    return rows[0]?.id;
  }
}

/**
 * SQL for the sandbox itself, its parent, and so on up to the sandbox that was created from an image; or up to the last one
 * within reach.
 */
export function ancestorsOf(id: string, reach?: Reach): RawBuilder<unknown> {
  const isWithin = (table: string): RawBuilder<unknown> =>
    reach === undefined ? sql`true` : sql`${isWithinSql(reach, table)}`;
  return sql`
    WITH RECURSIVE ancestors AS (
      SELECT id, parent_id, 0 AS distance FROM sandboxes
      WHERE id = ${id} AND ${isWithin('sandboxes')}
      UNION ALL
      SELECT parent.id, parent.parent_id, distance + 1 FROM sandboxes parent
      JOIN ancestors ON parent.id = ancestors.parent_id AND ${isWithin('parent')}
    )`;
}

function buildNode({ id, status, parent_id, created_at, ended_at }: Node): SandboxTreeNode {
  return {
    id,
    status,
    parent_id,
    created_at: new Date(created_at).toISOString(),
    ended_at: toTimestamp(ended_at),
  };
}
