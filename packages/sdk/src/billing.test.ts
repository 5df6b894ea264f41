import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LoopbackServer, sendJson } from './testing/loopback-server.ts';

const USAGE = {
  active_sandboxes: 2,
  history_sandboxes: 3,
  active_cost_cents: 0.5,
  history_cost_cents: 1.25,
  total_cost_cents: 1.75,
  cpu_seconds: 10.5,
  mem_seconds: 20.25,
  as_of: '2026-11-21T06:30:00.000Z',
};

const ENTRY = {
  id: 'run0123456789abcdef0123',
  status: 'destroyed',
  status_reason: 'requested',
  team_id: 'team1',
  image: 'coppice/base:1',
  vcpus: 1,
  mem_mib: 512,
  labels: { job: 'a' },
  create_ms: 120,
  created_at: '2026-11-21T06:30:00.000Z',
  destroyed_at: '2026-11-21T06:31:00.000Z',
  uptime_ms: 60_000,
  billed_ms: 50_000,
  cpu_ms: 10,
  mem_peak_bytes: 20,
  cost_cents: 0.01,
};

test('usage has fields in camelCase, and credit is null if the service sends none', async () => {
  await using server = await LoopbackServer.answering(200, USAGE);
  const usage = await server.client().usage();
  assert.deepEqual(usage, {
    activeSandboxes: 2,
    historySandboxes: 3,
    activeCostCents: 0.5,
    historyCostCents: 1.25,
    totalCostCents: 1.75,
    cpuSeconds: 10.5,
    memSeconds: 20.25,
    diskGbHours: 0,
    diskCostCents: 0,
    creditCents: null,
    creditLeftCents: null,
    asOf: USAGE.as_of,
  });
  assert.equal(`${server.last.method} ${server.last.url}`, 'GET /v1/usage');
});

test('usage includes the credit that the service sends', async () => {
  await using server = await LoopbackServer.answering(200, {
    ...USAGE,
    credit_cents: 5000,
    credit_left_cents: -0.5,
  });
  const { creditCents, creditLeftCents } = await server.client().usage();
  assert.deepEqual([creditCents, creditLeftCents], [5000, -0.5]);
});

test('the history is listed over all pages with its filters', async () => {
  await using server = await LoopbackServer.start(({ url }, response) => {
    const headers = url.includes('cursor') ? {} : { link: '</v1/runs/history?limit=1&cursor=x>; rel="next"' };
    sendJson(response, { status: 200, body: [ENTRY], headers });
  });
  const from = new Date('2026-11-01T00:00:00Z');
  const entries = await server.client().history({ from, labels: { job: 'a' }, status: 'destroyed' });
  assert.equal(entries.length, 2);
  assert.deepEqual(entries[0], {
    id: ENTRY.id,
    status: 'destroyed',
    statusReason: 'requested',
    teamId: 'team1',
    image: 'coppice/base:1',
    vcpus: 1,
    memMiB: 512,
    labels: { job: 'a' },
    createMs: 120,
    createdAt: ENTRY.created_at,
    destroyedAt: ENTRY.destroyed_at,
    uptimeMs: 60_000,
    billedMs: 50_000,
    cpuMs: 10,
    memPeakBytes: 20,
    costCents: 0.01,
  });
  const first = new URL(server.seen[0]?.url ?? '', server.url);
  assert.equal(first.pathname, '/v1/runs/history');
  assert.deepEqual(Object.fromEntries(first.searchParams), {
    status: 'destroyed',
    label: 'job:a',
    from: '2026-11-01T00:00:00.000Z',
  });
});

test('a statement has the lines of all pages', async () => {
  const line = (id: string) => ({
    sandbox_id: id,
    team_id: 'team1',
    image: 'coppice/base:1',
    vcpus: 1,
    mem_mib: 512,
    billed_ms: 1000,
    cost_cents: 0.5,
  });
  const sums = {
    sandboxes: 2,
    cpu_seconds: 2,
    mem_seconds: 1,
    cost_cents: 1,
    disk_gb_hours: 730,
    disk_cost_cents: 2,
  };
  await using server = await LoopbackServer.start(({ url }, response) => {
    const isLast = url.includes('cursor');
    const body = {
      month: '2026-11',
      from: '2026-11-01T00:00:00.000Z',
      to: '2026-12-01T00:00:00.000Z',
      as_of: '2026-12-02T00:00:00.000Z',
      complete: true,
      ...sums,
      teams: [{ team_id: 'team1', ...sums }],
      disks: [{ disk: 'data', team_id: 'team1', gb_hours: 730, cost_cents: 2 }],
      lines: [line(isLast ? 'run2' : 'run1')],
    };
    const headers = isLast ? {} : { link: '</v1/statements/2026-11?limit=1000&cursor=run1>; rel="next"' };
    sendJson(response, { status: 200, body, headers });
  });
  const statement = await server.client().statement('2026-11');
  assert.deepEqual(
    statement.lines.map(({ sandboxId, billedMs }) => [sandboxId, billedMs]),
    [
      ['run1', 1000],
      ['run2', 1000],
    ],
  );
  assert.equal(statement.complete, true);
  assert.deepEqual(statement.teams, [
    {
      teamId: 'team1',
      sandboxes: 2,
      cpuSeconds: 2,
      memSeconds: 1,
      costCents: 1,
      diskGbHours: 730,
      diskCostCents: 2,
    },
  ]);
  assert.deepEqual(statement.disks, [{ disk: 'data', teamId: 'team1', gbHours: 730, costCents: 2 }]);
  assert.match(server.seen[0]?.url ?? '', /^\/v1\/statements\/2026-11\?limit=1000$/);
});
