/** Leases of controls and their claims of runners, on a real PostgreSQL. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { sql } from 'kysely';
import { pino } from 'pino';
import type { Database } from '../db/database.ts';
import { newId } from '../../lib/new-id.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { DATABASE_NOW } from './database-time.ts';
import { newControlId } from './control-id.ts';
import { ControlLease } from './control-lease.ts';
import { ControlCount } from './control-count.ts';
import { findOwner } from './owners.ts';
import { RunnerClaims } from './runner-claims.ts';

const log = pino({ level: 'silent' });

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

const register = (leaseMs = 30_000, nodeId = newId('node')): Promise<ControlLease> =>
  ControlLease.register({ db, nodeId, version: '0.0.0', leaseMs, log });

async function addRunner(): Promise<string> {
  const id = newId('runner-');
  await new RunnerClaims(db, '').add(id, 'us');
  return id;
}

async function endLease(control: ControlLease): Promise<void> {
  await sql`UPDATE controls SET lease_until = ${DATABASE_NOW} - 1000 WHERE id = ${control.id}`.execute(db);
}

async function isOverInSql({ id }: ControlLease): Promise<boolean | undefined> {
  const { rows } = await sql<{ is_over: boolean }>`
    SELECT lease_until < ${DATABASE_NOW} AS is_over FROM controls WHERE id = ${id}`.execute(db);
  return rows[0]?.is_over;
}

test('of many controls that claim a runner one gets it, and keeps it while it renews its lease', async () => {
  const id = await addRunner();
  const controls = await Promise.all(Array.from({ length: 8 }, () => register()));
  const claims = controls.map((control) => new RunnerClaims(db, control.id));
  const epochs = await Promise.all(claims.map((claim) => claim.claim(id)));
  assert.deepEqual(
    epochs.filter((epoch) => epoch !== undefined),
    [1],
  );
  const owner = epochs.indexOf(1);
  assert.equal(await claims[owner]?.claim(id), 1, 'a second claim changes nothing');
  assert.equal(await claims[(owner + 1) % 8]?.claim(id), undefined);
  for (const control of controls) await control[Symbol.asyncDispose]();
});

test('a runner whose owner has not renewed its lease is taken, and the former owner is fenced', async () => {
  const id = await addRunner();
  await using former = await register();
  await using next = await register();
  assert.equal(await new RunnerClaims(db, former.id).claim(id), 1);
  assert.equal(await new RunnerClaims(db, next.id).claim(id), undefined);
  await endLease(former);
  assert.equal(await new RunnerClaims(db, next.id).claim(id), 2);
  assert.match((await former.fenced).message, /has taken the runners/u);
  assert.equal(await new RunnerClaims(db, former.id).claim(id), undefined);
});

test('a control whose lease was over and whose runners nobody took holds it again', async () => {
  const id = await addRunner();
  await using control = await register();
  await new RunnerClaims(db, control.id).claim(id);
  await endLease(control);
  while ((await isOverInSql(control)) === true) await new Promise((resolve) => setTimeout(resolve, 50));
  await using other = await register();
  assert.equal(await new RunnerClaims(db, other.id).claim(id), undefined);
  assert.equal(control.isHeld, true);
});

test('the next process of a data directory takes over at once, and a control that ends gives its runners up', async () => {
  const id = await addRunner();
  const nodeId = newId('node');
  const killed = await register(30_000, nodeId);
  assert.equal(await new RunnerClaims(db, killed.id).claim(id), 1);
  const next = await register(30_000, nodeId);
  assert.equal(await new RunnerClaims(db, next.id).claim(id), 2);
  await next[Symbol.asyncDispose]();
  await using last = await register();
  assert.equal(await new RunnerClaims(db, last.id).claim(id), 3);
  await killed[Symbol.asyncDispose]();
});

test('a lease that cannot be renewed ends here before it ends in SQL', async () => {
  // It ends here after two seconds, one before it is renewed.
  await using short = await register(8_000);
  assert.equal(short.isHeld, true);
  await waitFor('the end of the lease', () => !short.isHeld);
  assert.throws(() => short.assertHeld(), { code: '57P03' });
  assert.equal(await isOverInSql(short), false);
});

test('a control is found by its own id while it holds its lease and can be reached', async () => {
  await using control = await register();
  assert.equal(await findOwner(db, control.id), undefined, 'it has no address');
  await control.publish('127.0.0.1:7000');
  assert.deepEqual(await findOwner(db, control.id), { id: control.id, address: '127.0.0.1:7000' });
  await endLease(control);
  assert.equal(await findOwner(db, control.id), undefined);
  assert.equal(await findOwner(db, newControlId()), undefined);
});

test('room at a runner of another control counts while that control hears of it', async () => {
  await using own = await register();
  await using other = await register();
  await sql`UPDATE controls SET address = 'control.test:1' WHERE id = ${other.id}`.execute(db);
  const claims = new RunnerClaims(db, other.id);
  const [small, large] = [await addRunner(), await addRunner()];
  for (const [id, memMiB] of [
    [small, 1_000_000],
    [large, 2_000_000],
  ] as const) {
    await claims.claim(id);
    await claims.noteRound(id, { free: { memMiB, vcpus: 8 }, seenAt: undefined });
  }
  const find = () =>
    new RunnerClaims(db, own.id).findRoomElsewhere({ vcpus: 1, mem_mib: 500_000, disk_mib: 1 });
  assert.equal(await find(), large);
  await sql`UPDATE runners SET heard_at = heard_at - 60000 WHERE id = ${large}`.execute(db);
  assert.equal(await find(), small);
});

test('each control learns within moments how many there are', async () => {
  await sql`DELETE FROM controls`.execute(db);
  await using first = await register();
  await using controls = await ControlCount.open({ db, log, readEveryMs: 20 });
  assert.equal(controls.now, 1);
  const second = await register();
  await using third = await register();
  await waitFor('the others', () => controls.now === 3);
  await second[Symbol.asyncDispose]();
  await waitFor('the end of one', () => controls.now === 2);
  await endLease(third);
  await waitFor('the end of a lease', () => controls.now === 1);
  assert.equal(first.isHeld, true);
});
