/** Who descends from whom, by forks and by snapshots. */
import { MAX_TREE_NODES, type SandboxTree, type SandboxTreeNode } from '@coppice/contract';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import type { SandboxRow } from '../db/tables.ts';

type Node = Pick<SandboxRow, 'id' | 'status' | 'parent_id' | 'created_at' | 'ended_at'>;

export class FamilyStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** The sandbox itself, its parent, and so on up to the one that was created from an image. */
  async listAncestors(organizationId: string, id: string): Promise<string[]> {
    const { rows } = await sql<{ id: string }>`
      WITH RECURSIVE ancestors AS (
        SELECT id, parent_id, 0 AS distance FROM sandboxes
        WHERE id = ${id} AND organization_id = ${organizationId}
        UNION ALL
        SELECT parent.id, parent.parent_id, distance + 1 FROM sandboxes parent
        JOIN ancestors ON parent.id = ancestors.parent_id AND parent.organization_id = ${organizationId}
      )
      SELECT id FROM ancestors ORDER BY distance`.execute(this.#db);
    return rows.map((row) => row.id);
  }

  /** Undefined when there is no such sandbox. */
  async findTree(organizationId: string, id: string): Promise<SandboxTree | undefined> {
    const rootId = (await this.listAncestors(organizationId, id)).at(-1);
    if (rootId === undefined) return undefined;
    const { rows } = await sql<Node>`
      WITH RECURSIVE family AS (
        SELECT id, status, parent_id, created_at, ended_at FROM sandboxes WHERE id = ${rootId}
        UNION ALL
        SELECT child.id, child.status, child.parent_id, child.created_at, child.ended_at FROM sandboxes child
        JOIN family ON child.parent_id = family.id AND child.organization_id = ${organizationId}
      )
      SELECT * FROM family ORDER BY created_at, id LIMIT ${MAX_TREE_NODES + 1}`.execute(this.#db);
    const nodes = rows.slice(0, MAX_TREE_NODES).map(buildNode);
    return { root_id: rootId, nodes, truncated: rows.length > nodes.length };
  }
}

function buildNode({ id, status, parent_id, created_at, ended_at }: Node): SandboxTreeNode {
  return {
    id,
    status,
    parent_id,
    created_at: new Date(created_at).toISOString(),
    ended_at: ended_at === null ? null : new Date(ended_at).toISOString(),
  };
}
