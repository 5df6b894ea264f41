/** Lists at two controls on one PostgreSQL: one has the drivers of all live sandboxes, the other has none. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { SANDBOX_STATES, type SandboxRecord } from '@coppice/contract';
import fc from 'fast-check';
import type { Database } from '../db/database.ts';
import { insertTeam } from '../accounts/organizations/organization-store.ts';
import { findDetachingOf } from '../disks/held-disk.ts';
import { forceState } from '../testing/sandbox-row.ts';
import { openExplaining } from '../testing/explaining-database.ts';
import { insertEnded } from '../testing/many-ended.ts';
import { insertHibernated } from '../testing/many-hibernated.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { ROW_COLUMNS } from './record/row-columns.ts';
import { SandboxStore, type SandboxFilter } from './record/sandbox-store.ts';
import type { SandboxRow } from './record/sandbox-tables.ts';
import { LIVE_STATES } from './record/live-states.ts';
import { SandboxLists } from './sandbox-lists.ts';

const ROWS = 60;

let harness: ControlHarness;
let db: Database & AsyncDisposable;
before(async () => {
  harness = await startHarness();
  db = harness.openDatabase();
});
after(async () => {
  await db[Symbol.asyncDispose]();
  await harness[Symbol.asyncDispose]();
});

/** The lists of a control that owns no runner. */
function openOther(): SandboxLists {
  return new SandboxLists({
    store: new SandboxStore(db),
    drivers: { find: () => undefined },
    disks: { listDetaching: (ids) => findDetachingOf(db, ids) },
  });
}

async function readRow(id: string): Promise<SandboxRow> {
  return db.selectFrom('sandboxes').select(ROW_COLUMNS).where('id', '=', id).executeTakeFirstOrThrow();
}

async function findAtOther(id: string): Promise<SandboxRecord | undefined> {
  const { organization_id } = await readRow(id);
  return openOther().find({ organizationId: organization_id, onlyTeamId: null }, id);
}

const labelSets = [{}, { job: 'a' }, { job: 'b' }, { job: 'a', step: '1' }, { step: 'a' }];

/** Varies a row: many share a millisecond, and all states and labels occur. */
function vary(row: SandboxRow, index: number, teamIds: readonly string[]): SandboxRow {
  const status = SANDBOX_STATES[index % SANDBOX_STATES.length] ?? 'running';
  return {
    ...row,
    id: `run${((index * 0x9e_37_79_b1) % 0x1_00_00_00_00).toString(16).padStart(20, '0')}`,
    team_id: teamIds[index % teamIds.length] ?? row.team_id,
    status,
    ended_at: status === 'destroyed' || status === 'failed' ? row.created_at + 10 : null,
    created_at: row.created_at + (index % 7),
    name: index % 3 === 0 ? `name ${index}` : null,
    labels: labelSets[index % labelSets.length] ?? {},
  };
}

function toInsert(row: SandboxRow) {
  const { labels, has_env: _, ...columns } = row;
  return { ...columns, labels: JSON.stringify(labels) };
}

/** Returns the ids that a list has to contain: newest first, those of the same time by descending id. */
function select(rows: readonly SandboxRow[], filter: SandboxFilter): string[] {
  const { reach, statuses, name, labels, limit, after: cursor } = filter;
  const isOlder = (row: SandboxRow, { createdAt, id }: { createdAt: number; id: string }): boolean =>
    row.created_at === createdAt ? row.id < id : row.created_at < createdAt;
  return rows
    .filter(
      (row) =>
        row.organization_id === reach.organizationId &&
        (reach.onlyTeamId === null || row.team_id === reach.onlyTeamId) &&
        statuses.includes(row.status) &&
        (name === undefined || row.name === name) &&
        Object.entries(labels).every(([key, value]) => row.labels[key] === value) &&
        (cursor === undefined || isOlder(row, cursor)),
    )
    .toSorted((a, b) => (isOlder(a, { createdAt: b.created_at, id: b.id }) ? 1 : -1))
    .slice(0, limit)
    .map(({ id }) => id);
}

test('a control that owns nothing lists the sandboxes of all controls, under every filter', async () => {
  const row = await readRow((await harness.create()).id);
  const teamIds = [row.team_id, await insertTeam(db, row.organization_id, 'another')];
  const rows = [row, ...Array.from({ length: ROWS }, (_, index) => vary(row, index, teamIds))];
  await db.insertInto('sandboxes').values(rows.slice(1).map(toInsert)).execute();
  const other = openOther();
  const filters = fc.record({
    reach: fc.record({
      organizationId: fc.constantFrom(row.organization_id, 'another'),
      onlyTeamId: fc.constantFrom(null, 'another', ...teamIds),
    }),
    statuses: fc.oneof(
      fc.subarray([...LIVE_STATES], { minLength: 1 }),
      fc.subarray([...SANDBOX_STATES], { minLength: 1 }),
    ),
    name: fc.option(fc.constantFrom('name 3', 'name 6', 'none'), { nil: undefined, freq: 8 }),
    labels: fc.constantFrom(...labelSets),
    limit: fc.integer({ min: 1, max: ROWS }),
    after: fc.option(
      fc.constantFrom(...rows).map((one) => ({ createdAt: one.created_at, id: one.id })),
      { nil: undefined },
    ),
  });
  await fc.assert(
    fc.asyncProperty(filters, async ({ after: cursor, ...filter }) => {
      const asked = { ...filter, ...(cursor === undefined ? {} : { after: cursor }) };
      const { records, createdAt } = await other.list(asked);
      const expected = select(rows, asked);
      assert.deepEqual(
        records.map(({ id }) => id),
        expected,
      );
      assert.equal(createdAt.length, expected.length);
    }),
  );
});

test('a record is the same at the owner and at another control, at rest and hibernated', async () => {
  const fields = { timeout: 300, max_lifetime: 3600, name: 'one', labels: { a: 'b' } };
  const { id } = await harness.create(fields);
  const read = async () => [(await harness.call('GET', `/v1/runs/${id}`)).body, await findAtOther(id)];
  const [own, other] = await read();
  assert.ok(Math.abs(Date.parse(own.expires_at) - Date.parse(other.expires_at)) < 1_000, other.expires_at);
  assert.deepEqual({ ...other, expires_at: null }, { ...own, expires_at: null });
  await harness.call('PATCH', `/v1/runs/${id}`, { body: { timeout: 0 } });
  const [endless, otherEndless] = await read();
  const lifeEnd = Date.parse(own.created_at) + 3_600_000;
  for (const record of [endless, otherEndless])
    assert.ok(Math.abs(Date.parse(record.expires_at) - lifeEnd) < 100, record.expires_at);
  await harness.call('POST', `/v1/runs/${id}/hibernate`);
  const [hibernated, otherHibernated] = await read();
  assert.equal(otherHibernated.status, 'hibernated');
  assert.deepEqual({ ...otherHibernated, expires_at: null }, { ...hibernated, expires_at: null });
});

test('another control shows a use and an operation from the next heartbeat until they end', async () => {
  const { id } = await harness.create();
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  harness.runner.captures.onSnapshot = () => released;
  const taken = harness.call('POST', `/v1/runs/${id}/snapshot`);
  await waitFor('the operation', async () => (await findAtOther(id))?.operation === 'snapshotting');
  release();
  assert.equal((await taken).status, 201);
  await waitFor('its end', async () => (await findAtOther(id))?.operation === null);
});

test('a name is taken as long as SQL has a live sandbox with it, at whichever control', async () => {
  const { id, name } = await harness.create({ name: 'elsewhere' });
  const other = { ...(await readRow(id)), id: `run${'e'.repeat(20)}`, name: 'of another control' };
  await db.insertInto('sandboxes').values(toInsert(other)).execute();
  const create = (asked: unknown) =>
    harness.call('POST', '/v1/runs', { body: { image: 'node:22-slim', name: asked } });
  const taken = await create(other.name);
  assert.deepEqual([taken.status, taken.body.error.code], [409, 'already_exists']);
  const ended = { status: 'destroyed', ended_at: other.created_at } as const;
  await db.updateTable('sandboxes').set(forceState(ended)).where('id', 'in', [other.id, id]).execute();
  assert.equal((await create(other.name)).status, 201);
  assert.equal((await create(name)).status, 201, 'a driver whose sandbox has ended in SQL holds no name');
});

test('lists and checks of names use an index, however many sandboxes there are', async () => {
  const row = await readRow((await harness.create({ name: 'indexed' })).id);
  await insertHibernated(db, 5_000);
  await insertEnded(db, 20_000);
  const plans: string[] = [];
  await using explaining = openExplaining(harness.connection, plans);
  const explained = new SandboxStore(explaining);
  const reach = { organizationId: row.organization_id, onlyTeamId: null };
  const filter = { reach, statuses: LIVE_STATES, labels: {}, limit: 101 };
  await explained.list(filter);
  await explained.list({ ...filter, reach: { ...reach, onlyTeamId: row.team_id } });
  await explained.list({ ...filter, after: { createdAt: row.created_at, id: row.id } });
  for (const plan of plans.splice(0)) {
    assert.match(plan, /Index Scan using sandboxes_live/u);
    assert.doesNotMatch(plan, /Sort/u);
  }
  await explained.list({ ...filter, statuses: ['running'], labels: { job: 'a' } });
  assert.match(plans.splice(0).join(), /Index Scan (using|on) sandboxes_/u);
  await explained.list({ ...filter, name: 'indexed' });
  await explained.assertNameFree(row.team_id, 'indexed').catch(() => undefined);
  const [byName, check] = plans;
  assert.match(byName ?? '', /Index Scan using sandboxes_(live|named|by_name)/u);
  assert.match(check ?? '', /Index Scan using sandboxes_by_name/u);
});
