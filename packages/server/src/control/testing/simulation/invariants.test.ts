/** Each invariant fails on a service, or a ledger, that violates exactly this invariant. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { sql, type RawBuilder } from 'kysely';
import { Caller } from './caller.ts';
import { assertInvariants, assertKept } from './invariants.ts';
import { Ledger } from './ledger.ts';
import type { RestingService } from './resting-service.ts';
import { SimulatedWorld } from './simulated-world.ts';

const NEVER = `run${'0'.repeat(20)}`;
const RUN_MS = 10_000;
const AGREE_MS = 1000;
let world: SimulatedWorld;

before(async () => {
  world = await SimulatedWorld.start({ agreeMs: AGREE_MS });
});
after(() => world[Symbol.asyncDispose]());

/** Returns a sandbox that has run for a while, with its caller and ledger. */
async function begin(): Promise<{ ledger: Ledger; caller: Caller; id: string }> {
  const ledger = new Ledger();
  const caller = new Caller(
    ({ method, path, body, key }) =>
      world.call(method, path, {
        ...(body === undefined ? {} : { body }),
        ...(key === undefined ? {} : { headers: { 'idempotency-key': key } }),
      }),
    ledger,
  );
  const id = await caller.create({ image: 'node:22-slim', timeout: 0 }, `key-${performance.now()}`);
  assert.ok(id !== undefined);
  await world.pass(RUN_MS);
  return { ledger, caller, id };
}

async function change(...statements: RawBuilder<unknown>[]): Promise<void> {
  await using db = world.harness.openDatabase();
  await db.transaction().execute(async (transaction) => {
    for (const statement of statements) await statement.execute(transaction);
  });
}

function differing(change: Partial<RestingService>): RestingService {
  return {
    call: (method, path, options) => world.call(method, path, options),
    assertAgreement: () => world.assertAgreement(),
    readAuditSecret: (keyId) => world.readAuditSecret(keyId),
    readBills: (ids) => world.readBills(ids),
    findRanFor: (id) => world.findRanFor(id),
    ...change,
  };
}

test('all invariants hold in a consistent service, before and after a sandbox has ended', async () => {
  const { ledger, caller, id } = await begin();
  await caller.exec(id);
  await caller.snapshot(id);
  await assertInvariants(world, ledger);
  await caller.hibernate(id);
  await assertInvariants(world, ledger);
  await caller.resume(id);
  await world.pass(RUN_MS);
  await caller.destroy(id);
  await assertInvariants(world, ledger);
  assert.equal(ledger.told.size, 0);
  await assertKept(world, ledger);
});

test('all invariants hold when a sandbox is resumed and no control runs for a while', async () => {
  const { ledger, caller, id } = await begin();
  const hibernated = await world.call('POST', `/v1/runs/${id}/hibernate`);
  assert.equal(hibernated?.status, 200, hibernated?.text);
  ledger.noteHibernated(id);
  const isThere = await world.killControlAt('record.resumed', () => caller.resume(id));
  assert.ok(isThere, world.harness.logLines.slice(-5).join('\n'));
  await world.pass(10 * RUN_MS);
  await world.harness.runner.stop();
  await world.startControl();
  await world.harness.runner.start();
  await world.pass(RUN_MS);
  await caller.destroy(id);
  await assertInvariants(world, ledger);
  const [bill] = (await world.readBills([id])).bills;
  assert.ok(bill !== undefined && bill.billed_ms >= 2 * RUN_MS, JSON.stringify(bill));
});

test('all invariants hold when much time passes after a request that makes a sandbox due soon', async () => {
  const { ledger, caller, id } = await begin();
  await caller.change(id, { timeout: 60 });
  await world.pass(60 * RUN_MS);
  await world.harness.waitForRecord(id, ({ status }) => status === 'destroyed');
  await assertInvariants(world, ledger);
  const [bill] = (await world.readBills([id])).bills;
  assert.ok(bill !== undefined && bill.billed_ms < 8 * RUN_MS, JSON.stringify(bill));
});

test('a record that is gone', async () => {
  const { ledger } = await begin();
  ledger.noteRunning(NEVER);
  await assert.rejects(
    assertInvariants(world, ledger),
    new RegExp(`GET /v1/runs/${NEVER} answered 404`, 'u'),
  );
});

test('a sandbox that ended although no caller requested it', async () => {
  const { ledger, id } = await begin();
  world.harness.runner.endVm(id, 'vmm_lost');
  await world.harness.waitForRecord(id, ({ status }) => status === 'failed');
  await assert.rejects(assertInvariants(world, ledger), /is failed \(vm_lost\), expected is running/u);
  ledger.noteVmKilled(id);
  await assertInvariants(world, ledger);
});

test('a sandbox that runs although the answer to its caller says that it ended', async () => {
  const { ledger, id } = await begin();
  ledger.noteDestroyed(id);
  await assert.rejects(assertInvariants(world, ledger), /is running \(null\), expected is destroyed/u);
});

test('a VM that no record names and that is not removed', async () => {
  const { ledger, id } = await begin();
  const { runner } = world.harness;
  const vm = runner.vms.get(id);
  assert.ok(vm !== undefined);
  runner.onDelete = () => {
    throw new Error('it does not end');
  };
  runner.vms.set(NEVER, { ...vm, id: NEVER });
  await assert.rejects(assertInvariants(world, ledger), new RegExp(`VMs of the runner: .*${NEVER}`, 'u'));
  runner.onDelete = () => undefined;
  await assertInvariants(world, ledger);
});

test('a snapshot that was answered but is gone', async () => {
  const { ledger, caller, id } = await begin();
  await caller.snapshot(id);
  for (const snapshotId of ledger.snapshots) await world.call('DELETE', `/v1/snapshots/${snapshotId}`);
  await assert.rejects(assertInvariants(world, ledger), /snapshots that were answered are gone/u);
});

test('a command and a rollback that were answered but are not in the audit log', async () => {
  for (const [note, pattern] of [
    ['noteExec', /1 commands were answered, 0 are in its log/u],
    ['noteRollback', /rollbacks are missing/u],
  ] as const) {
    const { ledger, id } = await begin();
    ledger[note](id);
    await assert.rejects(assertInvariants(world, ledger), pattern);
  }
});

async function tamper(id: string, tampering: RawBuilder<unknown>): Promise<void> {
  await change(
    sql`ALTER TABLE audit_entries DISABLE TRIGGER audit_entries_are_final`,
    sql`${tampering} WHERE sandbox_id = ${id} AND event = 'exec.start'`,
    sql`ALTER TABLE audit_entries ENABLE TRIGGER audit_entries_are_final`,
  );
}

test('an entry of an audit log that was changed, and one that was removed', async () => {
  for (const tampering of [
    sql`UPDATE audit_entries SET data = '{"command":"false"}'`,
    sql`DELETE FROM audit_entries`,
  ]) {
    const { ledger, caller, id } = await begin();
    await caller.exec(id);
    await tamper(id, tampering);
    await assert.rejects(assertInvariants(world, ledger), /"valid":false/u);
    await caller.destroy(id);
  }
});

test('two creates with one Idempotency-Key that make two sandboxes', async () => {
  const { ledger } = await begin();
  ledger.noteAsked('key-2', {
    path: '/v1/runs',
    body: { image: 'node:22-slim', timeout: 0 },
    atMs: performance.now(),
  });
  const forgetful = differing({
    call: (method, path, { body } = {}) => world.call(method, path, body === undefined ? {} : { body }),
  });
  await assert.rejects(assertInvariants(forgetful, ledger), /Expected values to be strictly equal/u);
});

test('a period that is billed twice', async () => {
  const { ledger, caller, id } = await begin();
  await caller.destroy(id);
  await change(sql`INSERT INTO billing_segments
    SELECT sandbox_id, organization_id, team_id, started_at + 1, ended_at, vcpus, mem_mib
    FROM billing_segments WHERE sandbox_id = ${id}`);
  await assert.rejects(assertInvariants(world, ledger), /is billed twice for the same time/u);
  await change(sql`DELETE FROM billing_segments WHERE sandbox_id = ${id} AND started_at > (
    SELECT min(started_at) FROM billing_segments WHERE sandbox_id = ${id})`);
  await assertInvariants(world, ledger);
});

test('a bill that is not the sum of its parts, even of a sandbox that ended long ago', async () => {
  const { ledger, caller, id } = await begin();
  await caller.destroy(id);
  const addMs = (ms: number) =>
    change(sql`UPDATE billing_segments SET ended_at = ended_at + ${ms} WHERE sandbox_id = ${id}`);
  await addMs(5);
  await assert.rejects(assertInvariants(world, ledger), /is billed for \d+ ms, its parts are \d+ ms/u);
  await addMs(-5);
  await assertInvariants(world, ledger);
  await addMs(5);
  await assert.rejects(assertKept(world, ledger), /is billed for \d+ ms, its parts are \d+ ms/u);
  await addMs(-5);
});

test('sums of an organization and of a team that are not those of the ended sandboxes', async () => {
  for (const table of ['billing_accounts', 'team_accounts']) {
    const { ledger, caller, id } = await begin();
    await caller.destroy(id);
    await change(sql`UPDATE ${sql.table(table)} SET mem_mib_ms = mem_mib_ms + 1`);
    await assert.rejects(assertInvariants(world, ledger), new RegExp(`${table} \\w+: \\d+ \\d+, all`, 'u'));
    await change(sql`UPDATE ${sql.table(table)} SET mem_mib_ms = mem_mib_ms - 1`);
  }
});

test('a bill for longer, or for less, than the VM ran', async () => {
  const { ledger, caller, id } = await begin();
  await caller.destroy(id);
  for (const [atLeastMs, atMostMs] of [
    [0, RUN_MS - 1],
    [RUN_MS + 1, 2 * RUN_MS],
  ] as const) {
    const measured = differing({ findRanFor: () => ({ atLeastMs, atMostMs }) });
    await assert.rejects(
      assertInvariants(measured, ledger),
      /ran for \d+ to \d+ ms and is billed for 10000 ms/u,
    );
  }
  // In real time, the answers came within less time than is billed.
  const unmeasured = differing({ findRanFor: () => undefined });
  await assert.rejects(assertInvariants(unmeasured, ledger), /ran for [\d.]+ to [\d.]+ ms and is billed/u);
});

test('a sandbox that is ended as idle before it can have been idle', async () => {
  const { ledger, caller, id } = await begin();
  await caller.change(id, { timeout: 60 });
  await world.pass(70_000);
  await world.harness.waitForRecord(id, ({ status }) => status === 'destroyed');
  const early = differing({ findRanFor: () => ({ atLeastMs: 0, atMostMs: 59_000 }) });
  early.readBills = async () => ({ bills: [], contradictions: [] });
  await assert.rejects(assertInvariants(early, ledger), /ran for 59000 ms and was idle for 60 s/u);
  await assertInvariants(world, ledger);
});

test('a record that changes, or disappears, after its sandbox has ended', async () => {
  const { ledger, caller, id } = await begin();
  await caller.destroy(id);
  await assertInvariants(world, ledger);
  await change(sql`UPDATE sandboxes SET labels = '{"other":"label"}' WHERE id = ${id}`);
  await assert.rejects(assertKept(world, ledger), /other/u);
  await change(sql`UPDATE sandboxes SET labels = '{}' WHERE id = ${id}`);
  await assertKept(world, ledger);
  ledger.ended.set(NEVER, '{}');
  await assert.rejects(assertKept(world, ledger), /records of sandboxes that have ended are gone/u);
});

test('an audit log that is changed after its sandbox has ended', async () => {
  const { ledger, caller, id } = await begin();
  await caller.exec(id);
  await caller.destroy(id);
  await assertInvariants(world, ledger);
  await assertKept(world, ledger);
  await tamper(id, sql`UPDATE audit_entries SET data = '{}'`);
  await assert.rejects(assertKept(world, ledger), /"valid":false/u);
});
