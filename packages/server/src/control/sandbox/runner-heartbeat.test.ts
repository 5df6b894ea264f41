/** Heartbeats of the runner among its events, and what control does with them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sql } from 'kysely';
import { digestRoster } from '../../lib/protocol/roster-digest.ts';
import { startHarness, waitFor } from '../testing/control-harness.ts';

const NEVER_MS = 3_600_000;
const STRANGE = `run${'9'.repeat(20)}`;
const vm = { id: STRANGE, state: 'running', image: 'i', vcpus: 1, mem_mib: 1024, disk_mib: 4096 } as const;

test('a heartbeat with another roster than the last one starts a reconciliation, the same roster does not', async () => {
  await using harness = await startHarness({ reconcileIntervalMs: NEVER_MS });
  const { runner } = harness;
  const countRosters = (): number => runner.requests.filter((request) => request === 'GET /roster').length;
  await harness.create();
  runner.beat();
  await waitFor('a roster with the new sandbox', () => countRosters() === 2);
  await harness.call('GET', '/v1/runs');
  runner.beat();
  runner.beat();
  runner.vms.set(STRANGE, { ...vm, timings_ms: {} });
  runner.beat();
  await waitFor('the removal of a VM without a record', () => !runner.vms.has(STRANGE));
  assert.equal(countRosters(), 3);
});

test('one moment in the row of the runner is that of all its sandboxes, also for the next control', async () => {
  await using harness = await startHarness();
  await using db = harness.openDatabase();
  const { runner } = harness;
  const { id } = await harness.create();
  const { id: other } = await harness.create();
  const readSeen = async (): Promise<number> => {
    const row = await db.selectFrom('runners').select('seen_boot_ms').executeTakeFirstOrThrow();
    return row.seen_boot_ms ?? 0;
  };
  const readVersions = () =>
    db
      .selectFrom('sandboxes')
      .select(['id', sql<string>`xmin::text`.as('xmin')])
      .orderBy('id')
      .execute();
  const begun = await readSeen();
  await waitFor('a round with the sandboxes', async () => (await readSeen()) > begun + 500);
  const written = await readVersions();
  const later = await readSeen();
  await waitFor('a later round', async () => (await readSeen()) > later + 500);
  assert.deepEqual(await readVersions(), written, 'sandboxes at rest are not written');
  await harness.stopControl();
  const stoppedAt = await readSeen();
  runner.vms.delete(id);
  await harness.startControl();
  const record = await harness.waitForRecord(id, ({ status }) => status === 'failed');
  assert.equal(record.status_reason, 'vm_lost');
  const row = await db.selectFrom('sandboxes').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
  assert.equal(row.uptime_ms, Math.round(stoppedAt - (row.created_boot_ms ?? 0)));
  assert.equal(row.last_seen_boot_ms, stoppedAt);
  assert.equal((await harness.call('GET', `/v1/runs/${other}`)).body.status, 'running');
});

test('a heartbeat with the roster of the last round stands for a round, and the third round reads the roster again', async () => {
  await using harness = await startHarness({ reconcileIntervalMs: 400 });
  await using db = harness.openDatabase();
  const { runner } = harness;
  const countRosters = (): number => runner.requests.filter((request) => request === 'GET /roster').length;
  const readSeen = async (): Promise<number> =>
    (await db.selectFrom('runners').select('seen_boot_ms').executeTakeFirstOrThrow()).seen_boot_ms ?? 0;
  await harness.create();
  runner.beat();
  // More often than rounds, so that each has a heartbeat before it.
  const beating = setInterval(() => runner.beat(), 50);
  try {
    const rosters = countRosters();
    const seen = new Set<number>();
    await waitFor('many rounds', async () => seen.add(await readSeen()).size >= 12);
    const read = countRosters() - rosters;
    assert.ok(read >= 2 && read <= 8, `${read} rosters in 12 rounds`);
    const strange = `run${'8'.repeat(20)}`;
    runner.vms.set(strange, { ...vm, id: strange, timings_ms: {} });
    await waitFor('the removal of a VM without a record', () => !runner.vms.has(strange));
  } finally {
    clearInterval(beating);
  }
});

test('while a VM is missing, the moment of the runner stays, and its other sandboxes get theirs', async () => {
  await using harness = await startHarness({ reconcileIntervalMs: NEVER_MS });
  await using db = harness.openDatabase();
  const { runner } = harness;
  const { id } = await harness.create();
  const { id: other } = await harness.create();
  runner.beat();
  const readAll = async () => {
    const { seen_boot_ms } = await db.selectFrom('runners').select('seen_boot_ms').executeTakeFirstOrThrow();
    const { last_seen_boot_ms } = await db
      .selectFrom('sandboxes')
      .select('last_seen_boot_ms')
      .where('id', '=', other)
      .executeTakeFirstOrThrow();
    return { runner: seen_boot_ms ?? 0, other: last_seen_boot_ms ?? 0 };
  };
  await waitFor('a round with both', async () => {
    const seen = await readAll();
    return seen.runner > seen.other;
  });
  const before = await readAll();
  runner.vms.delete(id);
  runner.beat();
  await harness.waitForRecord(id, ({ status }) => status === 'failed');
  const after = await readAll();
  assert.equal(after.runner, before.runner);
  assert.ok(after.other > before.runner);
});

test('every request of control carries its epoch, which a restart raises', async () => {
  await using harness = await startHarness();
  const { runner } = harness;
  const first = runner.epoch;
  assert.ok(first > 0);
  await harness.stopControl();
  await harness.startControl();
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
  assert.equal(runner.epoch, first + 1);
  await harness.create();
  assert.equal(runner.epoch, first + 1);
});

test('a runner that knows a higher epoch than SQL is taken with a higher one', async () => {
  await using harness = await startHarness();
  const { runner } = harness;
  runner.epoch = 1000;
  const refused = await harness.call('POST', '/v1/runs', { body: { image: 'node:22-slim' } });
  assert.notEqual(refused.status, 201);
  await runner.stop();
  await runner.start();
  await waitFor('a connection', async () => (await harness.call('GET', '/healthz')).status === 200);
  await harness.create();
  assert.equal(runner.epoch, 1001);
});

test('a runner without a common version of the protocol is not connected, and the log names both versions', async () => {
  await using harness = await startHarness();
  const { runner } = harness;
  await runner.stop();
  runner.protocol = { oldest: 7, newest: 9 };
  await runner.start();
  await waitFor('the log', () =>
    harness.logLines.some((line) =>
      /speaks versions 7 to 9 of the protocol, and this control versions 1 to 2/u.test(line),
    ),
  );
  assert.equal((await harness.call('GET', '/healthz')).status, 503);
  runner.protocol = { oldest: 1, newest: 9 };
  await waitFor('a connection', async () => (await harness.call('GET', '/healthz')).status === 200);
});

test('a digest depends on the VMs and their states, and not on their order', () => {
  const [a, b] = [
    { id: 'a', state: 'running' },
    { id: 'b', state: 'creating' },
  ] as const;
  assert.equal(digestRoster([a, b]), digestRoster([b, a]));
  const others = [[], [a], [b], [a, { ...b, state: 'running' as const }]].map((vms) => digestRoster(vms));
  assert.equal(new Set([...others, digestRoster([a, b])]).size, 5);
});
