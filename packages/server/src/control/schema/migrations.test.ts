/** Databases of every earlier version, migrated to this one. */
import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { sql } from 'kysely';
import pino from 'pino';
import { prepareOn, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import {
  BILLED_MS,
  GRANTED_SECRET,
  HIBERNATED_ID,
  HIBERNATION_ID,
  LIFE_MS,
  MASTER_KEY,
  NAMED_SECRET,
  OTHER_KEY,
  REGISTRY_PASSWORD,
  ROLLBACK_ID,
  RUNNING_ID,
  SNAPSHOT_ID,
} from '../testing/migrations/migration-names.ts';
import { CHANGES } from '../testing/migrations/migration-rows.ts';
import {
  assertKept,
  fillDatabase,
  readDatabase,
  type Contents,
} from '../testing/migrations/migration-database.ts';
import { rowsAt } from '../testing/migrations/migration-history.ts';
import { makeDatabase } from '../testing/test-postgres.ts';
import { verifyLog } from '../testing/verify-log.ts';
import { openDatabase, type Database } from '../db/database.ts';
import { listAppliedMigrations, migrateDatabase, runMigrations } from './migrate.ts';
import { MIGRATIONS } from './migrations.ts';

const log = pino({ level: 'silent' });
const VERSIONS = Object.keys(MIGRATIONS);
const NEWEST = VERSIONS.at(-1)!;

const open = (url: string): Database & AsyncDisposable => openDatabase({ connectionString: url }, log);

function assertFilled(tables: Contents, version: string): void {
  for (const [name, rows] of tables) {
    assert.ok(rows.length > 0, `testing/migrations/migration-rows.ts: ${version} has no row of ${name}`);
    for (const column of Object.keys(rows[0]!)) {
      const isFilled = rows.some((row) => row[column] !== null);
      assert.ok(
        isFilled,
        `testing/migrations/migration-rows.ts: ${version} has no value of ${name}.${column}`,
      );
    }
  }
}

/** Starts a service on the database, with a runner that has the VMs and captures of the records. */
async function serve(url: string, version: string): Promise<ControlHarness> {
  const harness = await prepareOn(url);
  const data = join(harness.directory, 'data');
  await mkdir(data, { recursive: true });
  await writeFile(join(data, 'master.key'), MASTER_KEY);
  const shape = { image: 'i', vcpus: 1, mem_mib: 1024, disk_mib: 4096 };
  harness.runner.vms.set(RUNNING_ID, { id: RUNNING_ID, state: 'running', ...shape, timings_ms: {} });
  if (version >= '0005') {
    const capture = { ...shape, size_bytes: 1, pause_ms: 1, created_at: new Date().toISOString() };
    const bound = { bound_to: {}, usage: { cpu_ms: 1, mem_peak_bytes: 1 } };
    for (const [id, kind, vm_id] of [
      [HIBERNATION_ID, 'hibernation', HIBERNATED_ID],
      [SNAPSHOT_ID, 'snapshot', RUNNING_ID],
    ] as const)
      harness.runner.captures.saved.set(id, { id, kind, vm_id, ...capture, ...bound });
  }
  await harness.runner.start();
  await harness.startControl();
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
  return harness;
}

async function assertServes(harness: ControlHarness, version: string): Promise<void> {
  const listed = await harness.call('GET', '/v1/runs');
  const alive = version >= '0005' ? [HIBERNATED_ID, RUNNING_ID] : [RUNNING_ID];
  assert.deepEqual(
    listed.body
      .map(({ id }: { id: string }) => id)
      .toSorted()
      .toReversed(),
    alive,
  );
  const ended = await harness.call('GET', `/v1/runs/run${'2'.repeat(20)}`);
  assert.deepEqual([ended.status, ended.body.status], [200, 'destroyed']);
  const theirs = `/v1/runs/run${'3'.repeat(20)}`;
  assert.equal((await harness.call('GET', theirs)).status, 404);
  assert.equal((await harness.call('GET', theirs, { apiKey: OTHER_KEY })).status, 200);
  const revoked = `${OTHER_KEY.slice(0, -1)}x`;
  assert.equal((await harness.call('GET', '/v1/runs', { apiKey: revoked })).status, 401);
  if (version >= '0002') {
    await harness.create({ image: 'registry.test/some:1' });
    assert.equal(harness.runner.creates.at(-1)?.access?.credentials?.password, REGISTRY_PASSWORD);
  }
  if (version >= '0005') {
    assert.equal((await harness.call('GET', '/v1/snapshots')).body[0].id, SNAPSHOT_ID);
    assert.equal((await harness.call('POST', `/v1/runs/${HIBERNATED_ID}/resume`)).status, 200);
    const body = { snapshot_id: SNAPSHOT_ID };
    assert.equal((await harness.call('POST', '/v1/runs/restore', { body })).status, 201);
  }
  if (version >= '0010') {
    const resumed = harness.runner.egress.get(HIBERNATED_ID);
    const named = version >= '0022' ? [NAMED_SECRET] : [];
    assert.deepEqual(
      resumed?.grants.map(({ secret }) => secret),
      [...named, GRANTED_SECRET],
    );
    assert.deepEqual(resumed?.network.allow, ['api.test']);
  }
  if (version >= '0013') await assertRolledBack(harness);
  if (version >= '0018') await assertEnvironment(harness);
  assert.equal((await harness.call('DELETE', `/v1/runs/${RUNNING_ID}`)).status, 200);
  const entries = { '0007': 2, '0013': 1, '0017': 1, '0018': 2 };
  const sum = Object.entries(entries).reduce((all, [since, more]) => all + (version >= since ? more : 0), 1);
  assert.equal(await verifyLog(harness, RUNNING_ID), sum);
  await assertBilled(harness);
}

/** Checks that the rollback that an earlier control had begun is done. */
async function assertRolledBack(harness: ControlHarness): Promise<void> {
  await harness.waitForRecord(RUNNING_ID, ({ operation }) => operation === null);
  const done = harness.runner.captures.rollbacks.get(RUNNING_ID) ?? [];
  assert.deepEqual(
    done.map(({ rollback_id, capture_id }) => [rollback_id, capture_id]),
    [[ROLLBACK_ID, SNAPSHOT_ID]],
  );
}

/** Checks that processes get the variables and the directory that an earlier control has stored. */
async function assertEnvironment(harness: ControlHarness): Promise<void> {
  const body = { snapshot_id: SNAPSHOT_ID };
  const { id } = (await harness.call('POST', '/v1/runs/restore', { body })).body;
  for (const sandbox of [RUNNING_ID, id]) {
    const heads: unknown[] = [];
    harness.runner.onExec = ({ head, exit }) => {
      heads.push([head.cwd, head.env]);
      exit(0);
    };
    const ran = await harness.call('POST', `/v1/runs/${sandbox}/exec`, { body: { command: 'x' } });
    assert.equal(ran.status, 200);
    assert.deepEqual(heads, [['/srv', { OF: 'an old version' }]]);
  }
}

/** Checks that an ended sandbox costs what it did, and that the sums include it. */
async function assertBilled(harness: ControlHarness): Promise<void> {
  const { body: history } = await harness.call('GET', '/v1/runs/history');
  const ended = history.find(({ id }: { id: string }) => id === `run${'2'.repeat(20)}`);
  assert.deepEqual([ended.uptime_ms, ended.billed_ms], [LIFE_MS, BILLED_MS]);
  const { history_cost_cents } = (await harness.call('GET', '/v1/usage')).body;
  const others = history_cost_cents - ended.cost_cents;
  assert.ok(others > 0 && others < 10, `${others} cents for an hour of a small sandbox`);
}

test('every migration has test rows for its version', () => {
  assert.deepEqual(Object.keys(CHANGES), VERSIONS);
  assert.deepEqual(VERSIONS, VERSIONS.toSorted());
});

for (const version of VERSIONS) {
  test(`a database of ${version} keeps every value, and the service works on it`, async () => {
    const url = await makeDatabase();
    await using db = open(url);
    await runMigrations(db, { log, target: version });
    await fillDatabase(db, rowsAt(version));
    const then = await readDatabase(db);
    assertFilled(then, version);
    await migrateDatabase({ connectionString: url }, log);
    assertKept(then, await readDatabase(db), version);
    await using harness = await serve(url, version);
    await assertServes(harness, version);
  });
}

test('of processes that migrate at once, one migrates and the others wait, and nothing is done twice', async () => {
  const connection = { connectionString: await makeDatabase() };
  await Promise.all(Array.from({ length: 4 }, () => migrateDatabase(connection, log)));
  await using db = open(connection.connectionString);
  assert.deepEqual(await listAppliedMigrations(db), VERSIONS);
});

test('a database that a newer version has used is refused with the remedy and left unchanged', async () => {
  const url = await makeDatabase();
  await migrateDatabase({ connectionString: url }, log);
  await using db = open(url);
  await sql`INSERT INTO kysely_migration VALUES ('9999_later', ${new Date().toISOString()})`.execute(db);
  const before = await readDatabase(db);
  const harness = await prepareOn(url);
  await assert.rejects(harness.startControl(), {
    name: 'SchemaError',
    message: /newer version of Coppice.*9999_later.*install that version again, or restore a backup/u,
  });
  assert.deepEqual(await readDatabase(db), before);
  await harness[Symbol.asyncDispose]();
});

test('a migration has no statement timeout', async () => {
  const url = await makeDatabase();
  const seen: string[] = [];
  const newest = MIGRATIONS[NEWEST]!;
  MIGRATIONS[NEWEST] = {
    up: async (db) => {
      const { rows } = await sql<{ statement_timeout: string }>`SHOW statement_timeout`.execute(db);
      seen.push(rows[0]!.statement_timeout);
      await newest.up(db);
    },
  };
  try {
    await migrateDatabase({ connectionString: url }, log);
  } finally {
    MIGRATIONS[NEWEST] = newest;
  }
  assert.deepEqual(seen, ['0']);
});
