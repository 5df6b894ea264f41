/** How runners are divided among controls, on a real PostgreSQL. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { sql } from 'kysely';
import { pino } from 'pino';
import { newId } from '../../lib/new-id.ts';
import { insertOrganization } from '../accounts/organizations/organization-store.ts';
import { OrganizationAudit } from '../audit/organization/organization-audit.ts';
import { openDatabase, type Database } from '../db/database.ts';
import { BuildStore } from '../image-builds/build-store.ts';
import { newBuildId } from '../image-builds/image-builds.ts';
import { newSandboxId } from '../sandbox/record/ids.ts';
import { SecretBox } from '../secrets/secret-box.ts';
import { insertSandbox } from '../testing/sandbox-row.ts';
import { makeMigratedDatabase } from '../testing/test-postgres.ts';
import { ControlLease } from './control-lease.ts';
import { DATABASE_NOW } from './database-time.ts';
import { findOwner } from './owners.ts';
import { RunnerBalance } from './runner-balance.ts';
import { RunnerClaims } from './runner-claims.ts';

const log = pino({ level: 'silent' });

let db: Database;
before(async () => {
  db = openDatabase({ connectionString: await makeMigratedDatabase() }, log);
});
after(() => db.destroy());

interface Member {
  lease: ControlLease;
  balance: RunnerBalance;
  claims: RunnerClaims;
}

async function register(settleMs = 0): Promise<Member> {
  const lease = await ControlLease.register({
    db,
    nodeId: newId('node'),
    version: '0.0.0',
    leaseMs: 30_000,
    log,
  });
  await lease.publish('127.0.0.1:7000');
  const balance = new RunnerBalance(db, { control: lease.id, settleMs });
  return { lease, balance, claims: new RunnerClaims(db, lease.id) };
}

async function addRunners(
  count: number,
  { lease }: Member,
  address: string | null = 'h:1',
): Promise<string[]> {
  const ids = Array.from({ length: count }, () => newId('runner-'));
  const rows = ids.map((id) => ({ id, region: 'us', owner: lease.id, address, epoch: 1 }));
  await db.insertInto('runners').values(rows).execute();
  return ids;
}

/** As if the last handover were long ago. */
const rest = (): Promise<unknown> => sql`UPDATE runners SET handed_at = handed_at - 3600000`.execute(db);

async function clear(members: readonly Member[]): Promise<void> {
  for (const { lease } of members) await lease[Symbol.asyncDispose]();
  await db.deleteFrom('runners').execute();
}

/** Begins a build whose sandbox is at the runner. Returns its id. */
async function beginBuild(runnerId: string): Promise<string> {
  const owner = await db
    .transaction()
    .execute((transaction) => insertOrganization(transaction, { name: 'builds', region: 'us' }));
  assert.ok(owner);
  const of = { organization_id: owner.organizationId, team_id: owner.teamId };
  const [id, sandboxId] = [newBuildId(), newSandboxId()];
  await insertSandbox(db, { ...of, id: sandboxId, runner_id: runnerId });
  const build = { name: 'built/app:1', base: 'node:22-slim', steps: 1, created_at: 1, team_only: false };
  const store = new BuildStore(db, new OrganizationAudit(new SecretBox(Buffer.alloc(32, 1))));
  assert.ok(await store.insert({ ...of, ...build, id, sandbox_id: sandboxId, control_id: null }, 1));
  return id;
}

/** Hands one over, as a control does. */
async function moveOne({ balance }: Member): Promise<boolean> {
  const heir = await balance.findHeir();
  const [id] = await balance.listMovable();
  if (heir === undefined || id === undefined) return false;
  return (await balance.reserve(id, heir)) && balance.give(id, heir);
}

async function countOf(members: readonly Member[]): Promise<number[]> {
  const rows = await db.selectFrom('runners').select('owner').execute();
  return members.map(({ lease }) => rows.filter(({ owner }) => owner === lease.id).length);
}

test('controls that start later get runners until no control has two more than another one', async () => {
  const members = [await register(), await register(), await register()];
  const [first] = members;
  assert.ok(first);
  await addRunners(7, first);
  for (let round = 0; round < 20; round += 1) {
    for (const member of members) await moveOne(member);
    await rest();
  }
  assert.deepEqual(
    (await countOf(members)).toSorted((a, b) => a - b),
    [2, 2, 3],
  );
  for (const { balance } of members) assert.equal(await balance.findHeir(), undefined);
  await clear(members);
});

test('of controls that hand over at the same time one does, and the next one only after a while', async () => {
  const givers = await Promise.all(Array.from({ length: 6 }, () => register()));
  for (const giver of givers) await addRunners(2, giver);
  const late = await register();
  const plans = await Promise.all(
    givers.map(async ({ balance }) => ({ heir: await balance.findHeir(), ids: await balance.listMovable() })),
  );
  const reserved = await Promise.all(
    givers.map(({ balance }, index) => balance.reserve(plans[index]?.ids[0] ?? '', plans[index]?.heir ?? '')),
  );
  assert.equal(reserved.filter(Boolean).length, 1);
  const giver = reserved.indexOf(true);
  assert.equal(await givers[giver]?.balance.give(plans[giver]?.ids[0] ?? '', late.lease.id), true);
  assert.deepEqual(await countOf([late]), [1]);
  await rest();
  for (const { balance } of givers) assert.equal(await balance.findHeir(), undefined, 'it has enough');
  await clear([...givers, late]);
});

test('a runner that is given has the next epoch, its new owner takes it, and requests wait until then', async () => {
  const [from, to] = [await register(), await register()];
  const [id = ''] = await addRunners(2, from);
  assert.equal((await findOwner(db, id))?.id, from.lease.id);
  const heir = (await from.balance.findHeir()) ?? '';
  assert.equal(heir, to.lease.id);
  assert.equal(await from.balance.reserve(id, heir), true);
  assert.equal(await findOwner(db, id), undefined);
  assert.equal(await from.balance.give(id, heir), true);
  assert.equal(await from.balance.give(id, heir), false, 'it is no longer its owner');
  assert.equal(await from.claims.claim(id), undefined);
  assert.equal((await to.claims.listJoined()).find((one) => one.id === id)?.isFree ?? true, true);
  assert.equal(await to.claims.claim(id), 2);
  assert.equal(await findOwner(db, id), undefined, 'its sandboxes are being read');
  await to.claims.noteTaken(id);
  assert.equal((await findOwner(db, id))?.id, to.lease.id);
  assert.ok(!(await to.balance.listMovable()).includes(id), 'it has just moved');
  await clear([from, to]);
});

test('a runner of a control’s own machine stays, and a control that has just started, is gone or is not reached gets none', async () => {
  const from = await register();
  await addRunners(3, from, null);
  const to = await register();
  assert.equal(await from.balance.findHeir(), to.lease.id);
  assert.deepEqual(await from.balance.listMovable(), []);
  const [id = ''] = await addRunners(1, from);
  assert.deepEqual(await from.balance.listMovable(), [id]);
  const patient = new RunnerBalance(db, { control: from.lease.id, settleMs: 60_000 });
  assert.equal(await patient.findHeir(), undefined);
  await db.updateTable('controls').set({ address: null }).where('id', '=', to.lease.id).execute();
  assert.equal(await from.balance.findHeir(), undefined);
  await to.lease.publish('127.0.0.1:7001');
  await sql`UPDATE controls SET lease_until = ${DATABASE_NOW} - 1 WHERE id = ${to.lease.id}`.execute(db);
  assert.equal(await from.balance.findHeir(), undefined);
  assert.equal(await from.balance.reserve(id, to.lease.id), false);
  assert.equal(await from.balance.give(id, to.lease.id), false);
  await sql`UPDATE controls SET lease_until = ${DATABASE_NOW} + 9000 WHERE id = ${to.lease.id}`.execute(db);
  await db.updateTable('runners').set({ revoked_at: 1 }).where('id', '=', id).execute();
  assert.deepEqual(await from.balance.listMovable(), []);
  assert.equal(await from.balance.reserve(id, to.lease.id), false);
  await clear([from, to]);
});

test('a runner where a build has begun is neither listed nor given, until the build ends', async () => {
  const [from, to] = [await register(), await register()];
  const [id = ''] = await addRunners(2, from);
  const heir = to.lease.id;
  assert.equal(await from.balance.hasBuild(id), false);
  assert.equal(await from.balance.reserve(id, heir), true);
  const build = await beginBuild(id);
  assert.equal(await from.balance.hasBuild(id), true);
  assert.equal(await from.balance.give(id, heir), false);
  await rest();
  assert.ok(!(await from.balance.listMovable()).includes(id));
  await db.updateTable('image_builds').set({ ended_at: 1 }).where('id', '=', build).execute();
  assert.ok((await from.balance.listMovable()).includes(id));
  assert.equal(await from.balance.hasBuild(id), false);
  assert.equal(await from.balance.give(id, heir), true);
  await db.deleteFrom('image_builds').execute();
  await clear([from, to]);
});

test('a control that is about to end gets no runner, and gives none', async () => {
  const [from, to] = [await register(), await register()];
  const [id = ''] = await addRunners(2, from);
  assert.equal(await from.balance.findHeir(), to.lease.id);
  assert.equal(await from.balance.reserve(id, to.lease.id), true);
  await rest();
  await to.lease.leave();
  assert.equal(await from.balance.give(id, to.lease.id), false);
  assert.equal(await from.balance.findHeir(), undefined);
  assert.equal(await from.balance.reserve(id, to.lease.id), false);
  const next = await register();
  assert.equal(await from.balance.findHeir(), next.lease.id);
  await from.lease.leave();
  assert.equal(await from.balance.findHeir(), undefined);
  await clear([from, to, next]);
});
