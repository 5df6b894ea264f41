/** Streams of events at one control, of events that another control numbers, on one PostgreSQL. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sql } from 'kysely';
import { pino } from 'pino';
import { openDatabase } from '../db/database.ts';
import { startHarness, waitFor } from '../testing/control-harness.ts';
import { EventSequencer } from './event-sequencer.ts';

const log = pino({ level: 'silent' });

test('a stream is woken by events of its organization that another control has numbered, and by no others', async () => {
  await using harness = await startHarness();
  await harness.create();
  await using db = harness.openDatabase();
  const { id: own } = await db.selectFrom('organizations').select('id').executeTakeFirstOrThrow();
  const otherKey = await harness.addOrganization();
  const { id: other } = await db
    .selectFrom('organizations')
    .select('id')
    .where('id', '<>', own)
    .executeTakeFirstOrThrow();
  // This one finds no pending events, as the other control is always faster.
  await sql`CREATE SCHEMA slow`.execute(db);
  await sql`CREATE TABLE slow.pending_events (LIKE public.pending_events)`.execute(db);
  const connection = { ...harness.connection, options: '-c search_path=slow,public' };
  await using slow = openDatabase(connection, log);
  await using sequencer = new EventSequencer({ db: slow, clock: { wallMs: Date.now }, log });
  const woken = { own: 0, other: 0 };
  using _own = sequencer.watch(own, () => (woken.own += 1));
  using _other = sequencer.watch(other, () => (woken.other += 1));
  sequencer.start();
  await waitFor('the first look', () => woken.own > 0 && woken.other > 0);
  const before = { ...woken };
  await harness.create();
  await waitFor('the news', () => woken.own > before.own);
  assert.equal(woken.other, before.other);
  await harness.call('POST', '/v1/runs', { apiKey: otherKey, body: { image: 'node:22-slim' } });
  await waitFor('the news of the other organization', () => woken.other > before.other);
});
