/** The leading control among leases on a real PostgreSQL. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { sql } from 'kysely';
import { pino } from 'pino';
import { newId } from '../../lib/new-id.ts';
import { openDatabase, type Database } from '../db/database.ts';
import { waitFor } from '../testing/control-harness.ts';
import { makeMigratedDatabase } from '../testing/test-postgres.ts';
import { ControlLease } from './control-lease.ts';
import { DATABASE_NOW } from './database-time.ts';

const log = pino({ level: 'silent' });

let db: Database;
/** The database as one control sees it, which loses its way there. */
let breaking: Database;
let isAway = false;
beforeEach(async () => {
  const connection = { connectionString: await makeMigratedDatabase() };
  isAway = false;
  const assertUsable = (): void => {
    if (isAway) throw new Error('the database cannot be reached');
  };
  db = openDatabase(connection, log);
  breaking = openDatabase(connection, log, { assertUsable });
});
afterEach(async () => {
  await db.destroy();
  await breaking.destroy();
});

const register = (leaseMs = 30_000, on: Database = db): Promise<ControlLease> =>
  ControlLease.register({ db: on, nodeId: newId('node'), version: '0.0.0', leaseMs, log });

/** As if so much time had passed since its last renewal. */
const endLease = (control: ControlLease): Promise<unknown> =>
  sql`UPDATE controls SET lease_until = ${DATABASE_NOW} - 1000 WHERE id = ${control.id}`.execute(db);

test('of controls that start at the same time exactly one leads', async () => {
  const controls = await Promise.all(Array.from({ length: 6 }, () => register()));
  assert.equal(controls.filter(({ isLeading }) => isLeading).length, 1);
  const first = await db.selectFrom('controls').select('id').orderBy('started_at').orderBy('id').execute();
  assert.equal(controls.find(({ isLeading }) => isLeading)?.id, first[0]?.id);
  for (const control of controls) await control[Symbol.asyncDispose]();
});

test('the next control leads within seconds after the leading one has ended', async () => {
  const former = await register();
  await using next = await register();
  assert.deepEqual([former.isLeading, next.isLeading], [true, false]);
  await former[Symbol.asyncDispose]();
  assert.equal(former.isLeading, false);
  await waitFor('another control leads', () => next.isLeading);
});

test('a control that is stopped for longer than its lease leads no more, and not at once when it continues', async () => {
  await using stopped = await register(9_000, breaking);
  await using other = await register();
  assert.deepEqual([stopped.isLeading, other.isLeading], [true, false]);
  isAway = true;
  await waitFor('its lease is over here', () => !stopped.isHeld);
  assert.equal(stopped.isLeading, false, 'before its lease is over in SQL');
  await waitFor('the other leads', () => other.isLeading, 20_000);
  assert.equal(stopped.isLeading, false);
  isAway = false;
  await waitFor('the lease is held again', () => stopped.isHeld);
  assert.equal(stopped.isLeading, false, 'the other may not have seen it yet');
  await waitFor('the first control leads again', () => stopped.isLeading);
  await waitFor('the other has seen it', () => !other.isLeading);
});

test('a killed control, and one that is fenced, leave the lead to the next one', async () => {
  await using killed = await register(30_000, breaking);
  await using fenced = await register();
  await using next = await register();
  await sql`UPDATE controls SET is_fenced = true WHERE id = ${fenced.id}`.execute(db);
  isAway = true;
  await endLease(killed);
  await waitFor('the next one leads', () => next.isLeading);
  assert.equal(fenced.isLeading, false);
});
