import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { SANDBOX_STATES } from '@coppice/contract';
import fc from 'fast-check';
import { insertTeam } from '../../accounts/organizations/organization-store.ts';
import type { SandboxRow } from './sandbox-tables.ts';
import { startHarness, type ControlHarness } from '../../testing/control-harness.ts';
import { asksForLive, listLive, LIVE_STATES } from './live-list.ts';
import { ROW_COLUMNS } from './row-columns.ts';
import { SandboxStore } from './sandbox-store.ts';

const ROWS = 60;

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());

const labelSets = [{}, { job: 'a' }, { job: 'b' }, { job: 'a', step: '1' }, { step: 'a' }];

/** Varies a row: many share a millisecond, and all states and labels occur. */
function vary(row: SandboxRow, index: number, teamIds: readonly string[]): SandboxRow {
  return {
    ...row,
    id: `run${((index * 0x9e_37_79_b1) % 0x1_00_00_00_00).toString(16).padStart(20, '0')}`,
    team_id: teamIds[index % teamIds.length] ?? row.team_id,
    status: LIVE_STATES[index % LIVE_STATES.length] ?? 'running',
    created_at: row.created_at + (index % 7),
    name: index % 3 === 0 ? `name ${index}` : null,
    labels: labelSets[index % labelSets.length] ?? {},
  };
}

function toInsert(row: SandboxRow) {
  const { labels, has_env: _, ...columns } = row;
  return { ...columns, labels: JSON.stringify(labels) };
}

test('memory answers every list of live sandboxes as SQL does', async () => {
  const { id } = await harness.create();
  await using db = harness.openDatabase();
  const row = await db
    .selectFrom('sandboxes')
    .select(ROW_COLUMNS)
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  const teamIds = [row.team_id, await insertTeam(db, row.organization_id, 'another')];
  const rows = [row, ...Array.from({ length: ROWS }, (_, index) => vary(row, index, teamIds))];
  await db.insertInto('sandboxes').values(rows.slice(1).map(toInsert)).execute();
  const store = new SandboxStore(db);
  const whole = { organizationId: row.organization_id, onlyTeamId: null };
  const all = { reach: whole, statuses: LIVE_STATES, labels: {}, limit: 2 * ROWS };
  assert.equal(listLive(rows, all).length, ROWS + 1);
  const alive = (await store.listAlive(row.runner_id ?? '')).map((one) => one.id);
  assert.deepEqual(alive.toSorted(), rows.map((one) => one.id).toSorted());

  const filters = fc.record({
    reach: fc.record({
      organizationId: fc.constantFrom(row.organization_id, 'another'),
      onlyTeamId: fc.constantFrom(null, 'another', ...teamIds),
    }),
    statuses: fc.subarray([...LIVE_STATES], { minLength: 1 }),
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
      const expected = await store.list(asked);
      const found = listLive(rows, asked);
      assert.deepEqual(
        found.map((one) => one.id),
        expected.map((one) => one.id),
      );
    }),
  );
});

test('memory does not answer lists with ended sandboxes', () => {
  for (const status of SANDBOX_STATES)
    assert.equal(asksForLive({ statuses: ['running', status] }), !['destroyed', 'failed'].includes(status));
});
