/** Which control has a context, on a real PostgreSQL with several controls. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { sql } from 'kysely';
import { pino } from 'pino';
import { newId } from '../../lib/new-id.ts';
import { insertOrganization } from '../accounts/organizations/organization-store.ts';
import { openDatabase, type Database } from '../db/database.ts';
import { ControlLease } from '../ownership/control-lease.ts';
import { DATABASE_NOW } from '../ownership/database-time.ts';
import { makeMigratedDatabase } from '../testing/test-postgres.ts';
import { ContextStore } from './context-store.ts';

const HOUR_MS = 3_600_000;
const log = pino({ level: 'silent' });

let db: Database & AsyncDisposable;
let organizationId: string;
before(async () => {
  db = openDatabase({ connectionString: await makeMigratedDatabase() }, log);
  const owner = await db
    .transaction()
    .execute((transaction) => insertOrganization(transaction, { name: 'builds', region: 'us' }));
  assert.ok(owner);
  ({ organizationId } = owner);
});
after(() => db[Symbol.asyncDispose]());

async function register(address: string | undefined = '127.0.0.1:7000') {
  const nodeId = newId('node');
  const lease = await ControlLease.register({ db, nodeId, version: '0.0.0', leaseMs: 30_000, log });
  if (address !== '') await lease.publish(address);
  return { lease, store: new ContextStore(db, lease.id) };
}

const insert = async (store: ContextStore, waitMs = HOUR_MS): Promise<string> => {
  const id = newId('context');
  await store.insert({ id, organizationId }, waitMs);
  return id;
};

const listRows = async (): Promise<string[]> =>
  (await db.selectFrom('build_contexts').select('id').orderBy('id').execute()).map(({ id }) => id);

test('a context is found by the other controls, and only for its organization', async () => {
  await using stack = new AsyncDisposableStack();
  const [one, other] = [await register(), await register()];
  for (const { lease } of [one, other]) stack.use(lease);
  const id = await insert(one.store);
  assert.equal(await other.store.findElsewhere(organizationId, id), one.lease.id);
  assert.equal(await one.store.findElsewhere(organizationId, id), undefined);
  assert.equal(await other.store.findElsewhere('another', id), undefined);
  for (const hostile of ['', 'context', `${id}0`, "'", '\0', 'context\uD800'])
    assert.equal(await other.store.findElsewhere(organizationId, hostile), undefined);
  await one.store.delete(id);
  assert.equal(await other.store.findElsewhere(organizationId, id), undefined);
});

test('a control that cannot be reached, does not renew its lease, is fenced or has ended has none', async () => {
  await using stack = new AsyncDisposableStack();
  const [asking, alone, cut, fenced] = [
    await register(),
    await register(''),
    await register(),
    await register(),
  ];
  for (const { lease } of [asking, alone, cut, fenced]) stack.use(lease);
  const ended = await register();
  const ids = [];
  for (const { store } of [alone, cut, fenced, ended]) ids.push(await insert(store));
  await sql`UPDATE controls SET lease_until = ${DATABASE_NOW} - 1 WHERE id = ${cut.lease.id}`.execute(db);
  await sql`UPDATE controls SET is_fenced = true WHERE id = ${fenced.lease.id}`.execute(db);
  await ended.lease[Symbol.asyncDispose]();
  for (const id of ids) assert.equal(await asking.store.findElsewhere(organizationId, id), undefined);
  await asking.store.purge();
  assert.deepEqual(await listRows(), ids.slice(0, 2).toSorted(), 'a lease that is over may be renewed');
  for (const id of ids) await asking.store.delete(id);
});

test('a purge deletes what has expired, and a context that waits again expires later', async () => {
  const { lease, store } = await register();
  const [kept, extended, expired] = [
    await insert(store),
    await insert(store, -HOUR_MS),
    await insert(store, -HOUR_MS),
  ];
  await store.extend(extended, HOUR_MS);
  await store.purge();
  assert.deepEqual(await listRows(), [kept, extended].toSorted());
  assert.ok(!(await listRows()).includes(expired));
  await lease[Symbol.asyncDispose]();
  await store.purge();
  assert.deepEqual(await listRows(), []);
});
