import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import pg from 'pg';
import { pino } from 'pino';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import { findPostgresBin, waitFor } from '../testing/control-harness.ts';
import { DatabaseLease, DatabaseTakenError } from './database-lease.ts';
import { InstallationGuard } from './installation-guard.ts';
import { startPostgresChild, type PostgresChild } from './postgres/postgres-child.ts';

const logged: string[] = [];
const log = pino({ level: 'info' }, { write: (line) => logged.push(line) });
let directory = '';
let postgres: PostgresChild;

before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cop-lease-'));
  const postgresBin = await findPostgresBin();
  await rm(directory, { recursive: true });
  postgres = await startPostgresChild({ postgresBin, dataDir: directory, runDir: `${directory}-run`, log });
});
after(async () => {
  await postgres[Symbol.asyncDispose]();
  for (const path of [directory, `${directory}-run`]) await rm(path, { recursive: true, force: true });
});

const acquire = (): Promise<DatabaseLease> =>
  DatabaseLease.acquire({
    connection: postgres.connection,
    guard: new InstallationGuard(log),
    log,
    patienceMs: 300,
  });

async function connect(): Promise<pg.Client> {
  const client = new pg.Client(postgres.connection);
  await client.connect();
  return client;
}

/** Breaks the connections that hold an advisory lock. */
async function breakHolder(client: pg.Client): Promise<void> {
  await client.query(
    `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()`,
  );
}

test('a second control is refused while the first has the lease, and gets it afterwards', async () => {
  const first = await acquire();
  await assert.rejects(acquire(), DatabaseTakenError);
  await first[Symbol.asyncDispose]();
  await using second = await acquire();
  assert.ok(second.isHeld);
});

test('a lease whose connection broke is not held until it is granted again', async () => {
  await using lease = await acquire();
  const client = await connect();
  await breakHolder(client);
  const isLogged = (text: string): boolean => logged.some((line) => line.includes(text));
  await waitFor('the loss', () => isLogged('nothing is served until it is back'));
  await waitFor('the lease', () => lease.isHeld && isLogged('the lease of the database is back'));
  await client.end();
});

test('a lease that another control takes meanwhile is lost for good', async () => {
  await using lease = await acquire();
  const other = await connect();
  const client = await connect();
  const { rows } = await client.query<{ id: string }>(
    `SELECT ((classid::bigint << 32) | objid::bigint)::text AS id FROM pg_locks WHERE locktype = 'advisory'`,
  );
  const waiting = other.query(`SELECT pg_advisory_lock(${rows[0]?.id})`);
  await waitFor('the other to wait', async () => {
    const found = await client.query(`SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`);
    return found.rowCount === 1;
  });
  await breakHolder(client);
  await waiting;
  const error = await withDeadline('the loss', 10_000, lease.taken);
  assert.match(error.message, /another control uses this database/u);
  assert.equal(lease.isHeld, false);
  await Promise.all([other.end(), client.end()]);
});
