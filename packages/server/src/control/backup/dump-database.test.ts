/** Backups of databases of several versions, in the long form of every version, with every kind of value. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sql } from 'kysely';
import pino from 'pino';
import { IS_LONG } from '../../../../../e2e/fixtures/test-size.ts';
import { openDatabase, type Database } from '../db/database.ts';
import { RunnerClaims } from '../ownership/runner-claims.ts';
import { runMigrations } from '../schema/migrate.ts';
import { MIGRATIONS } from '../schema/migrations.ts';
import { assertKept, fillDatabase, readDatabase } from '../testing/migrations/migration-database.ts';
import { rowsAt } from '../testing/migrations/migration-history.ts';
import { makeDatabase } from '../testing/test-postgres.ts';
import { asOfOneMoment, dumpDatabase } from './dump-database.ts';
import { restoreDatabase } from './restore-database.ts';

const log = pino({ level: 'silent' });
const VERSIONS = Object.keys(MIGRATIONS);
const NEWEST = VERSIONS.at(-1)!;
/** Each migrates two databases: all versions would take minutes. */
const TRIED_VERSIONS = VERSIONS.filter((version, index) => IS_LONG || index % 6 === 0 || version === NEWEST);

async function open(): Promise<Database & AsyncDisposable> {
  return openDatabase({ connectionString: await makeDatabase() }, log, { deadlineMs: 0 });
}

async function dump(db: Database): Promise<string[]> {
  const lines = await asOfOneMoment(db, (transaction) => Array.fromAsync(dumpDatabase(transaction, '1.2.3')));
  return lines.join('').trimEnd().split('\n');
}

async function* each(lines: Iterable<string>): AsyncGenerator<string> {
  yield* lines;
}

for (const version of TRIED_VERSIONS) {
  test(`a backup of a database of ${version} is restored unchanged and then migrated`, async () => {
    await using source = await open();
    await runMigrations(source, { log, target: version });
    await fillDatabase(source, rowsAt(version));
    const then = await readDatabase(source);
    await using copy = await open();
    const { rows, head } = await restoreDatabase(copy, each(await dump(source)), log);
    assert.equal(rows, [...then.values()].flat().length);
    assert.equal(head.service, '1.2.3');
    const now = await readDatabase(copy);
    // The ids of events continue elsewhere, see below.
    for (const one of [then, now]) for (const table of ['event_counter', 'event_gaps']) one.delete(table);
    assertKept(then, now, version);
    if (version === NEWEST) assert.deepEqual(now, then);
  });
}

test('sequences continue after the numbers of the backup', async () => {
  await using source = await open();
  await runMigrations(source, { log });
  await using copy = await open();
  const lines = await dump(source);
  const newest = MIGRATIONS[NEWEST]!;
  MIGRATIONS[NEWEST] = {
    up: async (db) => {
      await newest.up(db);
      await sql`CREATE TABLE counted (n bigint GENERATED ALWAYS AS IDENTITY, t text, json json)`.execute(db);
    },
  };
  try {
    const counted = [1, 2, 3].map((n) => `counted\t{"n":${n},"t":"a\\u2028b","json":{"a": 1}}`);
    await restoreDatabase(copy, each([lines[0]!, ...counted, '{"rows":3}']), log);
  } finally {
    MIGRATIONS[NEWEST] = newest;
  }
  await sql`INSERT INTO counted (t, json) VALUES ('next', E'{"b":\\n1}')`.execute(copy);
  const { rows } = await sql<{ n: number }>`SELECT n FROM counted ORDER BY n DESC LIMIT 1`.execute(copy);
  assert.equal(rows[0]?.n, 4);
  const again = await dump(copy);
  assert.equal(again.filter((line) => line.startsWith('counted\t')).length, 4);
});

test('ids of events that were given after the backup are not given again', async () => {
  await using source = await open();
  await runMigrations(source, { log });
  await sql`INSERT INTO event_counter (last_id) VALUES (7)`.execute(source);
  const lines = await dump(source);
  const startedAt = Date.now();
  await using copy = await open();
  await restoreDatabase(copy, each(lines), log);
  const [gap] = await copy.selectFrom('event_gaps').selectAll().execute();
  const { last_id } = await copy.selectFrom('event_counter').selectAll().executeTakeFirstOrThrow();
  assert.ok(last_id >= startedAt * 100);
  assert.deepEqual(gap, { after_id: 7, through_id: last_id });
  await using later = await open();
  await restoreDatabase(later, each(await dump(copy)), log);
  const second = await later.selectFrom('event_counter').selectAll().executeTakeFirstOrThrow();
  assert.ok(second.last_id > last_id);
});

test('controls that were alive at the backup hold nothing in the restored database', async () => {
  await using source = await open();
  await runMigrations(source, { log });
  const lease = { started_at: 1, lease_until: Date.now() + 60_000 };
  await source
    .insertInto('controls')
    .values({ id: 'ctl1', node_id: 'node1', version: '1', ...lease })
    .execute();
  await source.insertInto('runners').values({ id: 'runner-1', region: 'us', owner: 'ctl1' }).execute();
  await using copy = await open();
  await restoreDatabase(copy, each(await dump(source)), log);
  await copy
    .insertInto('controls')
    .values({ id: 'ctl2', node_id: 'node2', version: '1', ...lease })
    .execute();
  assert.equal(await new RunnerClaims(source, 'ctl2').claim('runner-1'), undefined);
  assert.equal(await new RunnerClaims(copy, 'ctl2').claim('runner-1'), 1);
});

test('a database that no service has used cannot be backed up', async () => {
  await using db = await open();
  await assert.rejects(dump(db), /the database is empty/u);
});

test('a database that a backup is restored into has its own id', async () => {
  await using source = await open();
  await runMigrations(source, { log });
  const lines = await dump(source);
  await using copy = await open();
  await restoreDatabase(copy, each(lines), log);
  const ids = await Promise.all([source, copy].map(findId));
  assert.match(ids[0]!, /^[0-9a-f-]{36}$/u);
  assert.notEqual(ids[0], ids[1]);
  assert.ok(!lines.join('\n').includes(ids[0]!));
});

async function findId(db: Database): Promise<string> {
  const { rows } = await sql<{ id: string }>`SELECT id FROM installation`.execute(db);
  assert.equal(rows.length, 1);
  return rows[0]!.id;
}
