/** A control whose socket directory becomes that of another installation's PostgreSQL. */
import assert from 'node:assert/strict';
import { rename, symlink, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import pg from 'pg';
import {
  API_KEY,
  prepareHarness,
  startHarness,
  waitFor,
  type ControlHarness,
} from '../testing/control-harness.ts';
import { findDataDirectory, startPostgresChild } from './postgres/postgres-child.ts';
import { InstallationGuard } from './installation-guard.ts';
import { reachDatabase } from './reach-database.ts';

const LOSS_MS = 30_000;
const FOREIGN = /that of another installation/u;

const socketsOf = (harness: ControlHarness): string => join(harness.config.runDir, 'postgres');

/** Replaces the sockets, as a second service does that is started in the run directory of the first. */
async function replaceSockets(victim: ControlHarness, other: ControlHarness): Promise<void> {
  await rename(socketsOf(victim), `${socketsOf(victim)}.before`);
  await symlink(socketsOf(other), socketsOf(victim));
}

async function putBack(victim: ControlHarness): Promise<void> {
  await unlink(socketsOf(victim));
  await rename(`${socketsOf(victim)}.before`, socketsOf(victim));
}

/** Breaks the connections to a database: all, as its restart would, or all but that of the lease. */
async function breakConnections(connection: pg.PoolConfig, which: 'all' | 'pool'): Promise<void> {
  const client = new pg.Client({ ...connection, database: 'postgres' });
  await client.connect();
  await client.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = 'coppice' AND ($1 OR pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory'))`,
    [which === 'all'],
  );
  await client.end();
}

/** Returns the statuses of enough concurrent calls to need every connection of the pool. */
async function callOften(harness: ControlHarness, apiKey: string): Promise<number[]> {
  const calls = Array.from({ length: 30 }, () => harness.call('GET', '/v1/runs', { apiKey }));
  return [...new Set((await Promise.all(calls)).map(({ status }) => status))];
}

test('the database of another installation is never used: calls get 503, /healthz reports it, no key or record is read', async () => {
  await using victim = await startHarness({}, 'own');
  await using other = await startHarness({}, 'own');
  const foreignKey = await other.addOrganization();
  await other.create();
  const { id } = await victim.create();
  const own = { ...victim.connection, host: `${socketsOf(victim)}.before` };
  await replaceSockets(victim, other);
  // 503 if the pool needed a new connection, which is refused.
  const { status } = await victim.call('GET', '/v1/runs', { apiKey: foreignKey });
  assert.ok([401, 503].includes(status), `${status}`);
  await waitFor('/healthz to notice', async () => (await victim.call('GET', '/healthz')).status === 503);
  assert.match((await victim.call('GET', '/healthz')).body.error.message, FOREIGN);
  for (const which of ['pool', 'all'] as const) {
    await breakConnections(own, which);
    for (const apiKey of [foreignKey, API_KEY])
      assert.deepEqual(await callOften(victim, apiKey), [503], `after the loss of ${which}`);
  }
  assert.ok(victim.logLines.some((line) => FOREIGN.test(line) && line.includes('"level":50')));
  await putBack(victim);
  await waitFor('health', async () => (await victim.call('GET', '/healthz')).status === 200, LOSS_MS);
  assert.equal((await victim.call('GET', '/v1/runs')).body[0].id, id);
  assert.equal((await victim.call('GET', '/v1/runs', { apiKey: foreignKey })).status, 401);
  assert.equal((await other.call('GET', '/healthz')).status, 200);
});

test('/healthz reports that the database’s socket is gone, even if existing connections work', async () => {
  await using harness = await startHarness({}, 'own');
  await rename(socketsOf(harness), `${socketsOf(harness)}.gone`);
  const answer = async () => harness.call('GET', '/healthz');
  await waitFor('/healthz to notice', async () => (await answer()).status === 503);
  assert.match((await answer()).body.error.message, /the database does not answer/u);
  await rename(`${socketsOf(harness)}.gone`, socketsOf(harness));
  await waitFor('/healthz to notice', async () => (await answer()).status === 200);
});

test('calls to /healthz, however many, open one connection a second', async () => {
  await using harness = await startHarness({}, 'own');
  const client = new pg.Client({ ...harness.connection, database: 'postgres' });
  await client.connect();
  const countSessions = async (): Promise<number> => {
    const { rows } = await client.query<{ sessions: string }>(
      `SELECT pg_stat_force_next_flush(), (SELECT sessions FROM pg_stat_database WHERE datname = 'coppice') AS sessions`,
    );
    return Number(rows[0]?.sessions);
  };
  const before = await countSessions();
  const startedAt = performance.now();
  for (let round = 0; round < 5; round += 1) {
    const answers = await Promise.all(Array.from({ length: 100 }, () => harness.fetch('GET', '/healthz')));
    for (const answer of answers) assert.equal(answer.status, 200);
  }
  const seconds = (performance.now() - startedAt) / 1000;
  const opened = (await countSessions()) - before;
  await client.end();
  // Connections that timers open through the pool are among them.
  assert.ok(opened <= 12 + seconds, `${opened} connections in ${seconds} s`);
});

test('a server that does not know the service’s database counts as unreachable', async () => {
  await using harness = await startHarness({}, 'own');
  const client = new pg.Client({ ...harness.connection, database: 'postgres' });
  // The server ends it when the test fails.
  client.on('error', () => undefined);
  await client.connect();
  // Otherwise control would connect again before the rename, which needs a database without connections.
  await client.query('ALTER DATABASE coppice ALLOW_CONNECTIONS false');
  await breakConnections(harness.connection, 'all');
  const rename = () => client.query('ALTER DATABASE coppice RENAME TO elsewhere');
  await waitFor('the end of all connections', () =>
    rename().then(
      () => true,
      () => false,
    ),
  );
  for (const path of ['/v1/runs', '/healthz'])
    assert.equal((await harness.call('GET', path)).status, 503, path);
  await client.query('ALTER DATABASE elsewhere RENAME TO coppice');
  await client.query('ALTER DATABASE coppice ALLOW_CONNECTIONS true');
  await client.end();
  await waitFor('health', async () => (await harness.call('GET', '/healthz')).status === 200, LOSS_MS);
});

test('a command alongside the service refuses the PostgreSQL of another installation', async () => {
  await using harness = await startHarness({}, 'own');
  await using stranger = await prepareHarness({}, 'own');
  const config = { ...stranger.config, runDir: harness.config.runDir };
  await using stack = new AsyncDisposableStack();
  await assert.rejects(reachDatabase(config, stack, harness.log), /another installation.*COPPICE_RUN_DIR/u);
  const found = await reachDatabase(harness.config, stack, harness.log);
  assert.equal(await findDataDirectory(found), join(harness.config.dataDir, 'postgres'));
});

test('the guard binds to the first id that it sees, and then refuses other ids and databases without one', async () => {
  await using harness = await startHarness({}, 'own');
  await using other = await startHarness({}, 'own');
  const empty = await startPostgresChild({
    postgresBin: harness.config.postgresBin,
    dataDir: join(harness.directory, 'empty'),
    runDir: join(harness.directory, 'empty-run'),
    log: harness.log,
  });
  await using _ = empty;
  const guard = new InstallationGuard(harness.log);
  const check = async (connection: pg.PoolConfig): Promise<void> => {
    const client = new pg.Client(connection);
    await client.connect();
    await guard.check(client).finally(() => client.end());
  };
  await check(empty.connection);
  await check(harness.connection);
  await assert.rejects(check(other.connection), { code: '57P03', message: FOREIGN });
  await assert.rejects(check(empty.connection), { code: '57P03' });
  await check(harness.connection);
});
