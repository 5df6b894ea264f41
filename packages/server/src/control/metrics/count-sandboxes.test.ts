/** Counts of sandboxes at several controls, on a real PostgreSQL. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { DATABASE_NOW } from '../ownership/database-time.ts';
import { openExplaining } from '../testing/explaining-database.ts';
import { insertHibernated } from '../testing/many-hibernated.ts';
import { startHarness, type ControlHarness } from '../testing/control-harness.ts';
import { countSandboxes } from './count-sandboxes.ts';

let harness: ControlHarness;
let db: Database & AsyncDisposable;
before(async () => {
  harness = await startHarness();
  db = harness.openDatabase();
});
after(async () => {
  await db[Symbol.asyncDispose]();
  await harness[Symbol.asyncDispose]();
});

/** Adds a control that has started after all others, with a runner. */
async function addControl(id: string, runnerId: string): Promise<void> {
  await sql`
    INSERT INTO controls (id, node_id, version, started_at, lease_until)
    VALUES (${id}, ${id}, '0', ${DATABASE_NOW} + 1000, ${DATABASE_NOW} + 600000)`.execute(db);
  await db.insertInto('runners').values({ id: runnerId, region: 'us', owner: id, epoch: 1 }).execute();
}

async function setLease(id: string, endsInMs: number): Promise<void> {
  await sql`UPDATE controls SET lease_until = ${DATABASE_NOW} + ${endsInMs}::bigint WHERE id = ${id}`.execute(
    db,
  );
}

test('each sandbox is counted by one control, whichever owns its runner, and by the leading one if none does', async () => {
  await harness.create();
  const { id: leading } = await db.selectFrom('controls').select('id').executeTakeFirstOrThrow();
  await insertHibernated(db, 30);
  await addControl('ctl-b', 'runner-b');
  const runnerOf = (from: number, to: number, runner: string | null) =>
    sql`UPDATE sandboxes SET runner_id = ${runner} WHERE name BETWEEN ${`job-000${from}`} AND ${`job-000${to}`}`.execute(
      db,
    );
  await runnerOf(10, 19, 'runner-b');
  await db.insertInto('runners').values({ id: 'runner-c', region: 'us', owner: null }).execute();
  await runnerOf(20, 24, 'runner-c');
  const count = async (id: string) => Object.fromEntries(await countSandboxes(db, id));

  assert.deepEqual(await count(leading), { running: 1, hibernated: 20 });
  assert.deepEqual(await count('ctl-b'), { hibernated: 10 });
  await setLease('ctl-b', -1);
  assert.deepEqual(await count(leading), { running: 1, hibernated: 30 });
  assert.deepEqual(await count('ctl-b'), {}, 'a control whose lease is over counts none');
});

test('the count reads only live sandboxes, with indexes', async () => {
  const plans: string[] = [];
  // The tables of the test are so short that reading them all would cost less.
  await using explaining = openExplaining({ ...harness.connection, options: '-c enable_seqscan=off' }, plans);
  await countSandboxes(explaining, 'ctl-b');
  assert.equal(plans.join().match(/Index (Only )?Scan (using|on) sandboxes_/gu)?.length, 2);
  assert.doesNotMatch(plans.join(), /Seq Scan on sandboxes/u);
});
