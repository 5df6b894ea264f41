/** A sandbox in the history of an earlier version stays in the history if it ran or was billed. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { sql } from 'kysely';
import pino from 'pino';
import { listHistory } from './history-store.ts';
import { makeDatabase } from '../testing/test-postgres.ts';
import { openDatabase, type Database } from '../db/database.ts';
import { runMigrations } from '../schema/migrate.ts';

const CREATED_AT = 1_700_000_000_000;
const COMMON = {
  organization_id: 'org1',
  team_id: 'team1',
  image: 'coppice/base:1',
  region: 'us',
  vcpus: 1,
  mem_mib: 128,
  disk_mib: 1024,
  timeout_s: 300,
  labels: '{}',
  created_at: CREATED_AT,
  last_active_at: CREATED_AT,
  last_seen_at: CREATED_AT,
};
const log = pino({ level: 'silent' });

let db: Database;
before(async () => {
  db = openDatabase({ connectionString: await makeDatabase() }, log);
  await runMigrations(db, { log, target: '0010_egress' });
  await insertEarlier();
  await runMigrations(db, { log });
});
after(() => db.destroy());

async function insertEarlier(): Promise<void> {
  await sql`INSERT INTO organizations VALUES ('org1', 'one', 'us', 1)`.execute(db);
  await sql`INSERT INTO teams VALUES ('team1', 'org1', 'default', 1)`.execute(db);
  const ended = { status: 'failed', ended_at: CREATED_AT + 5000 };
  const rows: Record<string, unknown>[] = [
    { id: 'ran', ...ended, status: 'destroyed', create_ms: 900, uptime_ms: 5000, billed_ms: 5000 },
    { id: 'lost-at-once', ...ended, status_reason: 'vm_lost', create_ms: 900 },
    { id: 'image-not-found', ...ended, status_reason: 'create_failed' },
    { id: 'told-as-failed', ...ended, status_reason: 'create_failed', create_ms: 900 },
    { id: 'control-gone', ...ended, status_reason: 'control_restarted' },
    { id: 'billed-while-creating', ...ended, status: 'destroyed', uptime_ms: 700, billed_ms: 700 },
    { id: 'alive', status: 'running', create_ms: 900 },
  ];
  for (const row of rows)
    await db
      .insertInto('sandboxes')
      .values({ ...COMMON, ...row } as never)
      .execute();
  await sql`INSERT INTO billing_accounts VALUES ('org1', 6, 5700, 729600, NULL)`.execute(db);
}

test('the history and its count keep sandboxes that ran or were billed, and the sums stay', async () => {
  const reach = { organizationId: 'org1', onlyTeamId: null };
  const rows = await listHistory(db, { reach, statuses: [], labels: {}, limit: 10 });
  assert.deepEqual(rows.map(({ id }) => id).toSorted(), ['billed-while-creating', 'lost-at-once', 'ran']);
  const [account] = await db.selectFrom('billing_accounts').selectAll().execute();
  assert.deepEqual([account?.ended_sandboxes, account?.vcpu_ms, account?.mem_mib_ms], [3, '5700', '729600']);
  const [team] = await db.selectFrom('team_accounts').selectAll().execute();
  assert.deepEqual(team, { team_id: 'team1', ended_sandboxes: 3, vcpu_ms: '5700', mem_mib_ms: '729600' });
});

test('every record is still there', async () => {
  const { count } = await db
    .selectFrom('sandboxes')
    .select(({ fn }) => fn.countAll<number>().as('count'))
    .executeTakeFirstOrThrow();
  assert.equal(count, 7);
});
