/** Data of disks: measured, billed by month, and in usage, statements and credit. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { BYTE_MS_PER_COST_UNIT, DISK_GB_BYTES, type Statement } from '@coppice/contract';
import { startHarness, waitFor, type ControlHarness } from '../../testing/control-harness.ts';
import { splitByMonth } from '../months/split-by-month.ts';

const HOUR_MS = 3_600_000;
const MONTH_MS = 730 * HOUR_MS;

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());

async function addOrganization() {
  const apiKey = await harness.addOrganization();
  const call = (method: string, path: string, body?: object) =>
    harness.call(method, path, { apiKey, ...(body === undefined ? {} : { body }) });
  return { apiKey, call };
}

type Call = Awaited<ReturnType<typeof addOrganization>>['call'];

/** Creates a disk that stores `bytes`, which were measured `agoMs` ago. Returns its id. */
async function createDisk(
  call: Call,
  name: string,
  { bytes, agoMs }: { bytes: number; agoMs: number },
): Promise<string> {
  assert.equal((await call('POST', '/v1/disks', { name, size_gb: 5 })).status, 201);
  await using db = harness.openDatabase();
  const { id } = await db
    .selectFrom('disks')
    .select('id')
    .where('name', '=', name)
    .orderBy('created_at', 'desc')
    .executeTakeFirstOrThrow();
  const disk = harness.runner.disks.all.get(id);
  assert.ok(disk);
  disk.storedBytes = bytes;
  await waitFor('the first measurement', async () => {
    const row = await db.selectFrom('disks').select('stored_version').where('id', '=', id).executeTakeFirst();
    return row?.stored_version === 1;
  });
  await db
    .updateTable('disks')
    .set({ stored_bytes: bytes, stored_at: Date.now() - agoMs, stored_version: 1 })
    .where('id', '=', id)
    .execute();
  return id;
}

const near = (value: number, expected: number): boolean => Math.abs(value - expected) < expected * 1e-3;

test('a time is split at the borders of months, and the parts add up', () => {
  const border = Date.UTC(2026, 0, 1);
  assert.deepEqual(splitByMonth(border - 5, border + 7), [
    { month: '2025-12', ms: 5 },
    { month: '2026-01', ms: 7 },
  ]);
  const time = fc.integer({ min: Date.UTC(2020, 0), max: Date.UTC(2030, 0) });
  fc.assert(
    fc.property(time, time, (from, to) => {
      const parts = splitByMonth(from, to);
      assert.equal(
        parts.reduce((sum, { ms }) => sum + ms, 0),
        Math.max(0, to - from),
      );
      assert.equal(new Set(parts.map(({ month }) => month)).size, parts.length);
    }),
  );
});

test('a GB that is stored for a month costs 2 cents, before and after it is measured again, and after a delete', async () => {
  const { call } = await addOrganization();
  const usage = async () => (await call('GET', '/v1/usage')).body;
  const free = await usage();
  assert.deepEqual([free.disk_gb_hours, free.disk_cost_cents, free.total_cost_cents], [0, 0, 0]);
  const id = await createDisk(call, 'a', { bytes: DISK_GB_BYTES, agoMs: MONTH_MS });
  const check = async (): Promise<void> => {
    const { disk_cost_cents: cents, total_cost_cents: total, disk_gb_hours: hours } = await usage();
    assert.ok(near(cents, 2) && near(hours, 730) && total === cents, `${cents} cents, ${hours} GB-hours`);
  };
  await check();
  await using db = harness.openDatabase();
  await waitFor('the next measurement', async () => {
    const row = await db
      .selectFrom('disks')
      .select('stored_at')
      .where('id', '=', id)
      .executeTakeFirstOrThrow();
    return row.stored_at > Date.now() - HOUR_MS;
  });
  await check();
  assert.equal((await call('GET', '/v1/disks/a')).body.stored_bytes, DISK_GB_BYTES);
  assert.equal((await call('DELETE', '/v1/disks/a')).status, 204);
  await check();
});

test('statements have a line for each disk, and the months add up to the usage', async () => {
  const { call, apiKey } = await addOrganization();
  await createDisk(call, 'a', { bytes: 3 * DISK_GB_BYTES, agoMs: 3 * MONTH_MS });
  await createDisk(call, 'b', { bytes: DISK_GB_BYTES / 2, agoMs: HOUR_MS / 2 });
  await waitFor('the measurement', async () => {
    await using db = harness.openDatabase();
    return (
      (await db.selectFrom('disk_storage').select('month').where('name', '=', 'a').execute()).length >= 4
    );
  });
  const months = splitByMonth(Date.now() - 3 * MONTH_MS - HOUR_MS, Date.now()).map(({ month }) => month);
  const statements: Statement[] = [];
  for (const month of months) statements.push((await call('GET', `/v1/statements/${month}`)).body);
  const { total_cost_cents: total, disk_gb_hours: hours } = (await call('GET', '/v1/usage')).body;
  const sum = (read: (one: Statement) => number): number =>
    statements.reduce((all, one) => all + read(one), 0);
  assert.ok(
    near(
      sum((one) => one.cost_cents),
      total,
    ),
  );
  assert.ok(
    near(
      sum((one) => one.disk_gb_hours),
      hours,
    ),
  );
  const last = statements.at(-1);
  assert.deepEqual(
    last?.disks.map(({ disk }) => disk),
    ['a', 'b'],
  );
  const [team] = last?.teams ?? [];
  assert.deepEqual([team?.sandboxes, team?.cost_cents], [0, last?.cost_cents]);
  const csv = await (
    await harness.fetch('GET', `/v1/statements/${months.at(-1)}?format=csv`, { apiKey })
  ).text();
  const lines = csv.trimEnd().split('\r\n').slice(1);
  assert.deepEqual(
    lines.map((line) => line.split(',')[2]),
    ['disk:a', 'disk:b'],
  );
});

test('a clock that is set back bills no time twice', async () => {
  const { call } = await addOrganization();
  const id = await createDisk(call, 'a', { bytes: DISK_GB_BYTES, agoMs: 0 });
  await using db = harness.openDatabase();
  await db
    .updateTable('disks')
    .set({ stored_at: Date.now() + HOUR_MS })
    .where('id', '=', id)
    .execute();
  assert.equal((await call('GET', '/v1/usage')).body.disk_cost_cents, 0);
  assert.equal((await call('DELETE', '/v1/disks/a')).status, 204);
  assert.equal((await call('GET', '/v1/usage')).body.disk_cost_cents, 0);
});

test('a fork costs what the runner says that only it stores', async () => {
  const { call } = await addOrganization();
  await createDisk(call, 'a', { bytes: DISK_GB_BYTES, agoMs: 0 });
  await call('POST', '/v1/disks/a/snapshots', { name: 'v1' });
  await call('POST', '/v1/disks/a/fork', { snapshot: 'v1', name: 'b' });
  const fork = [...harness.runner.disks.all.values()].at(-1);
  assert.ok(fork);
  fork.storedBytes = 4096;
  await using db = harness.openDatabase();
  await db.updateTable('disks').set({ stored_version: null }).where('id', '=', fork.id).execute();
  await waitFor('its measurement', async () => (await call('GET', '/v1/disks/b')).body.stored_bytes === 4096);
});

test('objects are collected after a delete', async () => {
  const { call } = await addOrganization();
  await createDisk(call, 'a', { bytes: 0, agoMs: 0 });
  const [organization] = [...harness.runner.disks.all.values()].map((disk) => disk.organization).slice(-1);
  const collections = () => harness.runner.disks.collected.filter((one) => one === organization).length;
  await waitFor('the first collection', () => collections() > 0);
  const before = collections();
  await createDisk(call, 'b', { bytes: 0, agoMs: 0 });
  assert.equal(collections(), before);
  await call('DELETE', '/v1/disks/a');
  await waitFor('the next collection', () => collections() > before);
});

test('a unit of cost is a whole number of byte milliseconds', () => {
  const perMonth = 2n * 7_372_800_000n;
  assert.equal(perMonth * BYTE_MS_PER_COST_UNIT, 2n ** 30n * BigInt(MONTH_MS));
});
