/** Two controls on one database, with the same runner. */
import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import pg from 'pg';
import type { SandboxRecord } from '@coppice/contract';
import type { ControlConfig } from '../control-config.ts';
import { startControl, type Control } from '../control.ts';
import { MASTER_KEY_NAME } from '../secrets/master-key.ts';
import { API_KEY, prepareOn, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { MASTER_KEY } from '../testing/migrations/migration-names.ts';
import { spawnControl } from '../testing/controls/spawn-control.ts';
import { makeDatabase } from '../testing/test-postgres.ts';
import { verifyLog } from '../testing/verify-log.ts';

/** PostgreSQL notices at once that a control was killed: both are on this machine. */
const TAKEOVER_MS = 5_000;
const BURST_MS = 60_000;

/**
 * Configures a control with its own directory and the common master key, which opens secrets in the shared database.
 */
async function configOf(
  harness: ControlHarness,
  name: string,
  databasePatienceMs: number,
): Promise<ControlConfig> {
  const { config } = harness;
  const dataDir = join(harness.directory, name);
  await mkdir(dataDir, { recursive: true });
  await writeFile(join(dataDir, MASTER_KEY_NAME), MASTER_KEY, { mode: 0o600 });
  const runDir = join(harness.directory, `${name}-run`);
  return { ...config, dataDir, runDir, limits: { ...config.limits, databasePatienceMs } };
}

async function call(address: string, method: string, path: string, body?: unknown) {
  const response = await fetch(`${address}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${API_KEY}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: (await response.json()) as SandboxRecord };
}

test('of two controls that start at once, one serves, and the other is refused with the remedy', async () => {
  await using harness = await prepareOn(await makeDatabase());
  await harness.runner.start();
  const started = await Promise.allSettled(
    ['one', 'two'].map(async (name) => startControl(await configOf(harness, name, 300), harness.log)),
  );
  const [control] = started.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  const [refusal] = started.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
  assert.match(String(refusal), /another control uses this database: stop it.*DATABASE_URL/u);
  harness.control = control;
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
});

test('a control takes over from one that is killed in mid-burst: no answered request is lost or done twice', async () => {
  await using harness = await prepareOn(await makeDatabase());
  await harness.runner.start();
  await using first = await spawnControl(await configOf(harness, 'one', 300));
  const { address } = first;
  await waitFor('healthz', async () => (await fetch(`${address}/healthz`)).status === 200);
  const create = { image: 'node:22-slim', timeout: 300, max_lifetime: 3600 };
  const kept = await call(address, 'POST', '/v1/runs', create);
  const created = [kept.body.id];
  const destroyed = new Map<string, SandboxRecord>();
  const over = new AbortController();
  const use = async (): Promise<void> => {
    while (!over.signal.aborted) {
      const made = await call(address, 'POST', '/v1/runs', create);
      if (made.status !== 201) continue;
      created.push(made.body.id);
      const path = `/v1/runs/${made.body.id}`;
      if (created.length % 2 === 0 && (await call(address, 'DELETE', path)).status === 200)
        destroyed.set(made.body.id, (await call(address, 'GET', path)).body);
    }
  };
  harness.runner.onExec = (command) => command.exit(0);
  const executed: string[] = [];
  const execute = async (): Promise<void> => {
    for (let count = 0; !over.signal.aborted; count += 1) {
      const command = `echo ${count}`;
      const { status } = await call(address, 'POST', `/v1/runs/${kept.body.id}/exec`, { command });
      if (status === 200) executed.push(command);
    }
  };
  // Ignores the failures of requests that are open when it is killed.
  const users = [execute, ...Array.from({ length: 8 }, () => use)].map((user) =>
    user().catch(() => undefined),
  );
  await waitFor('a burst', () => destroyed.size >= 20, BURST_MS);
  const second = startControl(await configOf(harness, 'two', 2 * BURST_MS), harness.log);
  await waitFor('a longer burst', () => destroyed.size >= 40, BURST_MS);
  const killedAt = performance.now();
  over.abort();
  await first.kill();
  await Promise.all(users);
  harness.control = await second;
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
  assert.ok(performance.now() - killedAt < TAKEOVER_MS, 'within seconds');
  for (const [id, record] of destroyed)
    assert.deepEqual((await harness.call('GET', `/v1/runs/${id}`)).body, record);
  await assertSettled(harness, created);
  const { body } = await harness.call('GET', `/v1/runs/${kept.body.id}`);
  assert.equal(body.status, 'running');
  const leftMs = Date.parse(body.expires_at) - Date.now();
  assert.ok(leftMs > 0 && leftMs <= 301_000, `its timer continues: ${leftMs} ms`);
  assert.equal((await harness.call('DELETE', `/v1/runs/${kept.body.id}`)).status, 200);
  for (const id of created) await verifyLog(harness, id, join(harness.directory, 'two'));
  const log = await (await harness.fetch('GET', `/v1/runs/${kept.body.id}/audit`)).text();
  const exits = log.split('\n').filter((line) => line.includes('exec.exit'));
  assert.ok(executed.length > 0);
  for (const command of executed)
    assert.equal(exits.filter((line) => line.includes(`"command":"${command}"`)).length, 1, command);
});

/** Checks that each answered create has its record, and that the runner has exactly the VMs of running sandboxes. */
async function assertSettled(harness: ControlHarness, created: readonly string[]): Promise<void> {
  for (const id of created)
    assert.equal((await harness.call('GET', `/v1/runs/${id}`)).status, 200, `${id} is recorded`);
  await waitFor('records and VMs to agree', async () => {
    const running = await listRunning(harness);
    return JSON.stringify(running) === JSON.stringify([...harness.runner.vms.keys()].toSorted());
  });
  await waitFor('the ends to be acknowledged', () => harness.runner.ends.size === 0);
}

/** Lists the ids of running sandboxes, and the states of other live ones. */
async function listRunning(harness: ControlHarness): Promise<string[]> {
  await using db = harness.openDatabase();
  const rows = await db
    .selectFrom('sandboxes')
    .select(['id', 'status'])
    .where('ended_at', 'is', null)
    .execute();
  return rows.map(({ id, status }) => (status === 'running' ? id : status)).toSorted();
}

test('a control whose lease another one has writes nothing more and ends', async () => {
  await using harness = await prepareOn(await makeDatabase());
  await harness.runner.start();
  const one: Control = await startControl(await configOf(harness, 'one', 300), harness.log);
  harness.control = one;
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
  const { id } = await harness.create({ timeout: 0 });
  const other = new pg.Client(harness.connection);
  await other.connect();
  const { rows } = await other.query<{ pid: number; id: string }>(
    `SELECT pid, ((classid::bigint << 32) | objid::bigint)::text AS id FROM pg_locks
     WHERE locktype = 'advisory' AND granted
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
  );
  const locked = new pg.Client(harness.connection);
  await locked.connect();
  const waiting = locked.query(`SELECT pg_advisory_lock(${rows[0]?.id})`);
  // The lock goes to who waits for it; a control that comes before has it back, and nothing is lost.
  await waitFor('the lock to be waited for', async () => {
    const queued = await other.query(`SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`);
    return queued.rowCount === 1;
  });
  await other.query(`SELECT pg_terminate_backend(${rows[0]?.pid})`);
  await waiting;
  const isNoticed = (): boolean =>
    harness.logLines.some((line) => line.includes('lease of the database is lost'));
  await waitFor('the loss to be noticed', isNoticed);
  harness.runner.endVm(id, 'guest_shutdown');
  assert.match(String(await one.lost), /another control uses this database/u);
  const found = await other.query(`SELECT status FROM sandboxes WHERE id = '${id}'`);
  assert.deepEqual(found.rows, [{ status: 'running' }]);
  assert.equal(harness.runner.ends.size, 1, 'its end waits for the other control');
  await Promise.all([other.end(), locked.end()]);
});
