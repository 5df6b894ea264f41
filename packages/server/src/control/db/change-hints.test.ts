/** Hints of changes on a real PostgreSQL, whose connections break. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { sql } from 'kysely';
import pino from 'pino';
import { waitFor } from '../testing/control-harness.ts';
import { makeMigratedDatabase } from '../testing/test-postgres.ts';
import { ChangeHints, hintChange } from './change-hints.ts';
import { openDatabase, type Database } from './database.ts';
import { InstallationGuard } from './installation-guard.ts';

const log = pino({ level: 'silent' });

let connection: { connectionString: string };
let db: Database;
before(async () => {
  connection = { connectionString: await makeMigratedDatabase() };
  db = openDatabase(connection, log);
});
after(() => db.destroy());

const open = (): ChangeHints => {
  const hints = new ChangeHints({ connection, guard: new InstallationGuard(log), log });
  hints.start();
  return hints;
};

test('a hint arrives when its transaction is committed, and only for its subject', async () => {
  await using hints = open();
  let events = 0;
  let secrets = 0;
  hints.on('events', () => (events += 1));
  hints.on('secrets', () => (secrets += 1));
  await waitFor('the connection', () => events === 1 && secrets === 1);
  await db.transaction().execute(async (transaction) => {
    await hintChange(transaction, 'events');
    await delay(100);
    assert.equal(events, 1, 'before the commit');
  });
  await waitFor('the hint', () => events === 2);
  const undone = db.transaction().execute(async (transaction) => {
    await hintChange(transaction, 'events');
    throw new Error('undone');
  });
  await assert.rejects(undone, /undone/u);
  await hintChange(db, 'secrets');
  await waitFor('the other hint', () => secrets === 2);
  assert.equal(events, 2);
});

test('listeners look again when a broken connection is back', async () => {
  await using hints = open();
  let looks = 0;
  using _on = hints.on('events', () => (looks += 1));
  await waitFor('the connection', () => looks === 1);
  await sql`
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'LISTEN%'`.execute(db);
  await waitFor('the next connection', () => looks === 2);
  await hintChange(db, 'events');
  await waitFor('the hint', () => looks === 3);
});
