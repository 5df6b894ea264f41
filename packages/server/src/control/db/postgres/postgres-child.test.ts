import assert from 'node:assert/strict';
import { chmod, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import pg from 'pg';
import pino from 'pino';
import { findPostgresBin } from '../../testing/control-harness.ts';
import { startPostgresChild, type PostgresChildOptions } from './postgres-child.ts';

const log = pino({ level: 'silent' });

async function setUp(): Promise<PostgresChildOptions & AsyncDisposable> {
  const directory = await mkdtemp(join(tmpdir(), 'cop-pg-'));
  await chmod(directory, 0o755);
  return {
    postgresBin: await findPostgresBin(),
    dataDir: join(directory, 'data'),
    runDir: join(directory, 'run'),
    log,
    [Symbol.asyncDispose]: () => rm(directory, { recursive: true, force: true }),
  };
}

async function query(connection: pg.PoolConfig, text: string): Promise<unknown[]> {
  const client = new pg.Client(connection);
  await client.connect();
  try {
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}

const readPid = async (options: PostgresChildOptions) =>
  Number((await readFile(join(options.dataDir, 'postgres/postmaster.pid'), 'utf8')).split('\n')[0]);

test('PostgreSQL is created, is not root, listens on no port, is durable, and keeps its data across a stop', async () => {
  await using options = await setUp();
  {
    await using postgres = await startPostgresChild(options);
    const status = await readFile(`/proc/${await readPid(options)}/status`, 'utf8');
    if (process.getuid?.() === 0) assert.doesNotMatch(status, /^Uid:\s+0\s/m);
    assert.deepEqual(await query(postgres.connection, 'SHOW listen_addresses'), [{ listen_addresses: '' }]);
    assert.deepEqual(await query(postgres.connection, 'SHOW fsync'), [{ fsync: 'on' }]);
    assert.equal((await stat(join(options.dataDir, 'postgres'))).mode & 0o777, 0o700);
    await query(postgres.connection, 'CREATE TABLE kept (n integer)');
  }
  await assert.rejects(readPid(options), /ENOENT/);
  await using postgres = await startPostgresChild(options);
  assert.deepEqual(await query(postgres.connection, 'SELECT * FROM kept'), []);
});

test('a live postmaster is reused, and no second one is started', async () => {
  await using options = await setUp();
  await using first = await startPostgresChild(options);
  const pid = await readPid(options);
  const second = await startPostgresChild(options);
  assert.equal(await readPid(options), pid);
  assert.deepEqual(second.connection, first.connection);
});

test('a data directory of another major version is refused with the remedy', async () => {
  await using options = await setUp();
  await (await startPostgresChild(options))[Symbol.asyncDispose]();
  await writeFile(join(options.dataDir, 'postgres/PG_VERSION'), '9\n');
  await assert.rejects(startPostgresChild(options), {
    name: 'PostgresMajorError',
    message: /made by PostgreSQL 9, but .*\/postgresql\/9\/bin.*coppice admin backup/u,
  });
});

test('a directory without programs, as after their removal, is refused with the remedy', async () => {
  await using options = await setUp();
  const postgresBin = join(options.runDir, 'removed', 'bin');
  await assert.rejects(startPostgresChild({ ...options, postgresBin }), {
    name: 'PostgresMissingError',
    message: /no PostgreSQL in .*removed\/bin: "npm run setup"/u,
  });
});

test('a lock file that names a foreign process does not prevent the start', async () => {
  await using options = await setUp();
  await (await startPostgresChild(options))[Symbol.asyncDispose]();
  await writeFile(join(options.dataDir, 'postgres/postmaster.pid'), `${process.pid}\n`);
  await using postgres = await startPostgresChild(options);
  assert.equal((await query(postgres.connection, 'SELECT 1')).length, 1);
});

test('a run directory too long for a Unix socket is refused with the remedy', async () => {
  await using options = await setUp();
  const runDir = join(options.runDir, 'x'.repeat(100));
  await assert.rejects(startPostgresChild({ ...options, runDir }), /too long for a Unix socket/);
});
