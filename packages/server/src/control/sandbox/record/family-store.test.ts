/** Number of rows that a tree reads, counted by PostgreSQL. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { MAX_TREE_NODES } from '@coppice/contract';
import { sql, type Insertable } from 'kysely';
import type { Reach } from '../../accounts/organizations/reach.ts';
import type { Database } from '../../db/database.ts';
import type { SandboxTable } from './sandbox-tables.ts';
import { startHarness, type ControlHarness } from '../../testing/control-harness.ts';
import { FamilyStore } from './family-store.ts';

const BATCH = 1000;

let harness: ControlHarness;
let row: Insertable<SandboxTable>;
before(async () => {
  harness = await startHarness();
  const { id } = await harness.create();
  await using db = harness.openDatabase();
  const { labels: _, ...first } = await db
    .selectFrom('sandboxes')
    .selectAll()
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  row = { ...first, labels: '{}', status: 'failed', ended_at: first.created_at };
});
after(() => harness[Symbol.asyncDispose]());

const reachOf = (organizationId: string): Reach => ({ organizationId, onlyTeamId: null });

let families = 0;
/** Inserts a family by its parents: `parents[n]` is the place of the parent of the sandbox at place n + 1. */
async function insertFamily(db: Database, parents: readonly number[]): Promise<string[]> {
  families += 1;
  const ids = [-1, ...parents].map(
    (_, place) => `run${(families * 1_000_000 + place).toString(16).padStart(20, '0')}`,
  );
  const rows = ids.map((id, place) => ({
    ...row,
    id,
    parent_id: place === 0 ? null : (ids[parents[place - 1] ?? 0] ?? null),
    created_at: row.created_at + place,
    ended_at: row.created_at + place,
  }));
  for (let start = 0; start < rows.length; start += BATCH)
    await db
      .insertInto('sandboxes')
      .values(rows.slice(start, start + BATCH))
      .execute();
  return ids;
}

/** Returns the tree and the number of rows that it reads. */
async function findTree(db: Database, id: string) {
  return db.transaction().execute(async (transaction) => {
    const tree = await new FamilyStore(transaction).findTree(reachOf(row.organization_id), id);
    const { rows } = await sql<{ read: number }>`
      SELECT (coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int AS read
      FROM pg_stat_xact_user_tables WHERE relname = 'sandboxes'`.execute(transaction);
    return { tree, read: rows[0]?.read ?? Infinity };
  });
}

for (const [name, parents] of [
  ['one wide generation', Array.from({ length: 4000 }, () => 0)],
  ['generations that grow fourfold', Array.from({ length: 4000 }, (_, place) => Math.floor(place / 4))],
  ['a long line', Array.from({ length: 3000 }, (_, place) => place)],
] as const)
  test(`a tree of ${name} reads no more than it shows, and shows those nearest to the root in order`, async () => {
    await using db = harness.openDatabase();
    const ids = await insertFamily(db, parents);
    const { tree, read } = await findTree(db, ids[0] ?? '');
    assert.deepEqual([tree?.root_id, tree?.truncated], [ids[0], true]);
    assert.deepEqual(
      tree?.nodes.map((node) => node.id),
      ids.slice(0, MAX_TREE_NODES),
    );
    assert.ok(read <= 2 * MAX_TREE_NODES, `${read} rows were read`);
  });

test('a family that just fits is not truncated, and its last member has the same root', async () => {
  await using db = harness.openDatabase();
  const ids = await insertFamily(
    db,
    Array.from({ length: MAX_TREE_NODES - 1 }, (_, place) => place % 7),
  );
  const { tree } = await findTree(db, ids.at(-1) ?? '');
  assert.deepEqual([tree?.root_id, tree?.nodes.length, tree?.truncated], [ids[0], MAX_TREE_NODES, false]);
});

test('a sandbox descends from itself and its ancestors, and from no other', async () => {
  await using db = harness.openDatabase();
  const [root = '', child = '', grandchild = '', sibling = ''] = await insertFamily(db, [0, 1, 0]);
  const store = new FamilyStore(db);
  const asked = (id: string, other: string) => store.isOrDescends(reachOf(row.organization_id), id, other);
  for (const other of [grandchild, child, root]) assert.equal(await asked(grandchild, other), true);
  for (const other of [sibling, 'run0']) assert.equal(await asked(grandchild, other), false);
  assert.equal(await asked(child, grandchild), false);
  assert.equal(await store.isOrDescends(reachOf('another'), grandchild, root), false);
});
