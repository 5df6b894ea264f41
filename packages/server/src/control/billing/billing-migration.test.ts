/** Records of an earlier version are billed as before, to the unit. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { computeCostUnits } from '@coppice/contract';
import { sql } from 'kysely';
import pino from 'pino';
import { makeDatabase } from '../testing/test-postgres.ts';
import { openDatabase, type Database } from '../db/database.ts';
import { runMigrations } from '../schema/migrate.ts';

const CREATED_AT = 1_700_000_000_000;
const COMMON = {
  organization_id: 'org1',
  team_id: 'team1',
  image: 'coppice/base:1',
  region: 'us',
  vcpus: 3,
  mem_mib: 700,
  disk_mib: 1024,
  timeout_s: 300,
  labels: '{}',
  created_at: CREATED_AT,
  last_active_at: CREATED_AT,
  last_seen_at: CREATED_AT,
};
const cost = (billedMs: number) => computeCostUnits({ vcpus: 3, memMiB: 700, billedMs }).toString();

const log = pino({ level: 'silent' });

let db: Database;
before(async () => {
  db = openDatabase({ connectionString: await makeDatabase() }, log);
  await runMigrations(db, { log, target: '0006_teams' });
  await insertEarlier();
  await runMigrations(db, { log });
});
after(() => db.destroy());

async function insertEarlier(): Promise<void> {
  await sql`INSERT INTO organizations VALUES ('org1', 'one', 'us', 1)`.execute(db);
  await sql`INSERT INTO teams VALUES ('team1', 'org1', 'default', 1)`.execute(db);
  const rows: Record<string, unknown>[] = [
    {
      id: 'straight',
      status: 'destroyed',
      ended_at: CREATED_AT + 5000,
      uptime_ms: 5000,
      cost_units: cost(5000),
    },
    {
      id: 'slept',
      status: 'destroyed',
      ended_at: CREATED_AT + 9000,
      uptime_ms: 9000,
      hibernated_ms: 2999,
      cost_units: cost(6000),
    },
    { id: 'never', status: 'failed', ended_at: CREATED_AT + 100, uptime_ms: 0, cost_units: '0' },
    {
      id: 'asleep',
      status: 'hibernated',
      hibernated_at: CREATED_AT + 999_999,
      boot_id: 'boot',
      created_boot_ms: 1000.25,
      hibernated_boot_ms: 8000.5,
      hibernated_ms: 1000,
    },
    { id: 'awake', status: 'running', hibernated_ms: 1000 },
  ];
  for (const row of rows)
    await db
      .insertInto('sandboxes')
      .values({ ...COMMON, ...row } as never)
      .execute();
}

test('an ended sandbox keeps its cost, and its uptime is divided to the millisecond', async () => {
  const rows = await db.selectFrom('sandboxes').selectAll().orderBy('id').execute();
  assert.deepEqual(
    rows.map(({ id, billed_ms, hibernated_ms, uptime_ms }) => [id, billed_ms, hibernated_ms, uptime_ms]),
    [
      ['asleep', 6000, 1000, 0],
      ['awake', 0, 1000, 0],
      ['never', 0, 0, 0],
      ['slept', 6000, 3000, 9000],
      ['straight', 5000, 0, 5000],
    ],
  );
  for (const row of rows) if (row.ended_at !== null) assert.equal(row.cost_units, cost(row.billed_ms));
});

test('segments cover ended and hibernated sandboxes, and sums cover ended ones', async () => {
  const segments = await db.selectFrom('billing_segments').selectAll().orderBy('sandbox_id').execute();
  assert.deepEqual(
    segments.map(({ sandbox_id, started_at, ended_at }) => [sandbox_id, started_at, ended_at]),
    [
      ['asleep', CREATED_AT, CREATED_AT + 6000],
      ['slept', CREATED_AT, CREATED_AT + 6000],
      ['straight', CREATED_AT, CREATED_AT + 5000],
    ],
  );
  const [account] = await db.selectFrom('billing_accounts').selectAll().execute();
  assert.deepEqual(account, {
    organization_id: 'org1',
    // Without the one that never ran, since 0014_history.
    ended_sandboxes: 2,
    vcpu_ms: '33000',
    mem_mib_ms: '7700000',
    exhausted_at: null,
  });
});
