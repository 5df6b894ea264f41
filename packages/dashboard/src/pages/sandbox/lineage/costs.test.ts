import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SandboxInfo, StatementLine } from '../../../../../sdk/src/index.ts';
import { costOf, sumLines } from './costs.ts';
import { buildFamily } from './family.ts';

const CREATED = '2026-11-01T00:00:00.000Z';
const HOUR_MS = 3_600_000;

function line(sandboxId: string, billedMs: number): StatementLine {
  return { sandboxId, teamId: 'team1', image: 'image:1', vcpus: 1, memMiB: 1024, billedMs, costCents: 0 };
}

const { nodes } = buildFamily({
  sandboxes: [
    { id: 'live', status: 'running', parentId: null, createdAt: CREATED, endedAt: null },
    { id: 'ended', status: 'destroyed', parentId: 'live', createdAt: CREATED, endedAt: CREATED },
  ],
  snapshots: [],
  origins: new Map(),
});
const shape = { vcpus: 1, memMiB: 1024, billedMs: HOUR_MS, runningSince: CREATED };
const live = new Map([['live', shape as SandboxInfo]]);
const at = Date.parse(CREATED) + HOUR_MS;

function costIn(
  id: string,
  costs: ReturnType<typeof sumLines> | undefined,
  records = live,
): number | undefined {
  const node = nodes.get(id);
  assert.ok(node);
  return costOf(node, { live: records, costs, now: at });
}

test('a sandbox that exists costs what its record says, up to now', () => {
  assert.equal(costIn('live', undefined), 8);
});

test('the cost of an ended one is the sum of its lines over the months', () => {
  const costs = sumLines([line('ended', HOUR_MS), line('other', 1), line('ended', 2 * HOUR_MS)]);
  assert.equal(costIn('ended', costs), 12);
  assert.equal(costIn('ended', undefined), undefined);
});

test('without the record of a live one its cost is not known: that of the statement is out of date', () => {
  assert.equal(costIn('live', sumLines([line('live', HOUR_MS)]), new Map()), undefined);
});
