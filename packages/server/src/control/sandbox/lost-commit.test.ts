/** Commits that SQL made although control received no answer. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SandboxState } from '@coppice/contract';
import { sql } from 'kysely';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { forceState } from '../testing/sandbox-row.ts';
import { PendingInserts } from './live/live-drivers.ts';
import { SandboxStore } from './record/sandbox-store.ts';

async function commitUnheard(harness: ControlHarness, id: string, status: SandboxState): Promise<void> {
  await using db = harness.openDatabase();
  const end = status === 'destroyed' ? { ended_at: Date.now(), status_reason: 'requested' as const } : {};
  await db
    .updateTable('sandboxes')
    .set({ ...forceState({ status, ...end }), version: sql<number>`version + 1` })
    .where('id', '=', id)
    .execute();
}

test('an end whose commit got no answer is accepted, and later events are processed', async () => {
  await using harness = await startHarness();
  const ended = await harness.create();
  const other = await harness.create();
  await commitUnheard(harness, ended.id, 'destroyed');
  harness.runner.endVm(ended.id, 'destroyed');
  harness.runner.endVm(other.id, 'guest_shutdown');
  await harness.waitForRecord(other.id, (record) => record.status_reason === 'guest_shutdown');
  await waitFor('the ends to be acknowledged', () => harness.runner.ends.size === 0);
  await waitFor('health', async () => (await harness.call('GET', '/healthz')).status === 200);
  assert.equal((await harness.call('DELETE', `/v1/runs/${ended.id}`)).status, 409);
});

test('a change that another process has committed is not overwritten', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  {
    await using db = harness.openDatabase();
    const labels = JSON.stringify({ of: 'another process' });
    const version = sql<number>`version + 1`;
    await db.updateTable('sandboxes').set({ labels, version }).where('id', '=', id).execute();
  }
  const change = () => harness.call('PATCH', `/v1/runs/${id}`, { body: { timeout: 120 } });
  const refused = await change();
  assert.deepEqual([refused.status, refused.body.error.code], [503, 'unavailable']);
  const { status, body } = await change();
  assert.deepEqual([status, body.timeout, body.labels], [200, 120, { of: 'another process' }]);
});

test('an expired sandbox shows its reason, although the answer to the removal of its VM was lost', async () => {
  await using harness = await startHarness();
  harness.runner.onDelete = (id) => {
    harness.runner.endVm(id, 'destroyed');
    throw new Error('the answer is lost');
  };
  const { id } = await harness.create({ timeout: 1 });
  const { status_reason } = await harness.waitForRecord(id, (record) => record.status === 'destroyed');
  assert.equal(status_reason, 'idle_timeout');
});

test('a start whose commit got no answer is undone: its caller was answered that it failed', async () => {
  await using harness = await startHarness();
  harness.runner.onCreate = (id) => commitUnheard(harness, id, 'running');
  assert.equal((await harness.call('POST', '/v1/runs', { body: { image: 'node:22-slim' } })).status, 503);
  await waitFor('the VM to be removed', () => harness.runner.vms.size === 0);
  await waitFor('the record', async () => {
    const [record] = (await harness.call('GET', '/v1/runs?status=failed')).body;
    return record?.status_reason === 'create_failed';
  });
});

test('a sandbox that cannot be reconciled does not block the others', async () => {
  await using harness = await startHarness();
  const stuck = await harness.create();
  const lost = await harness.create();
  harness.runner.onDelete = (id) => {
    if (id === stuck.id) throw new Error('the VM does not die');
  };
  harness.runner.vms.delete(stuck.id);
  harness.runner.vms.delete(lost.id);
  await harness.waitForRecord(lost.id, (record) => record.status_reason === 'vm_lost');
  harness.runner.onDelete = () => undefined;
  await harness.waitForRecord(stuck.id, (record) => record.status_reason === 'vm_lost');
});

test('callers that wait for one sandbox do not delay the events of the others', async () => {
  await using harness = await startHarness();
  const busy = await harness.create();
  const other = await harness.create();
  const gate = Promise.withResolvers<void>();
  harness.runner.onDelete = () => gate.promise;
  const destroyed = harness.call('DELETE', `/v1/runs/${busy.id}`);
  await waitFor('the destroy', () => harness.runner.requests.some((request) => request.startsWith('DELETE')));
  const patches = Array.from({ length: 80 }, () => harness.call('PATCH', `/v1/runs/${busy.id}`));
  assert.equal((await Promise.race(patches)).status, 429);
  harness.runner.endVm(busy.id, 'guest_shutdown');
  for (let round = 0; round < 5; round += 1)
    assert.equal((await harness.call('GET', '/healthz')).status, 200);
  gate.resolve();
  assert.equal((await destroyed).status, 200);
  await Promise.all(patches);
  harness.runner.endVm(other.id, 'guest_shutdown');
  await harness.waitForRecord(other.id, (record) => record.status !== 'running');
  assert.ok(!harness.logLines.some((line) => line.includes('the runner is not connected')));
});

class LosingStore extends SandboxStore {
  override async insert(...insert: Parameters<SandboxStore['insert']>): Promise<never> {
    await super.insert(...insert);
    throw new Error('Connection terminated unexpectedly');
  }
}

test('an insert whose answer was lost counts, and its record is found again', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  await using db = harness.openDatabase();
  const inserts = new PendingInserts(new LosingStore(db));
  const { has_env: _, ...made } = await new SandboxStore(db).get(id);
  const row = { ...made, id: `run${'a'.repeat(20)}`, labels: '{}', status: 'creating' as const };
  await assert.rejects(
    inserts.insert([row], () => undefined),
    /terminated/,
  );
  assert.equal(inserts.list(row.organization_id).length, 1);
  const found: string[] = [];
  await inserts.resolve((recovered) => found.push(recovered.id));
  assert.deepEqual(found, [row.id]);
  assert.equal(inserts.list(row.organization_id).length, 0);
});

test('a start does not wait for a sandbox in the middle of a long step', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  {
    await using db = harness.openDatabase();
    await db
      .updateTable('sandboxes')
      .set(forceState({ status: 'creating' }))
      .where('id', '=', id)
      .execute();
  }
  await harness.stopControl();
  const gate = Promise.withResolvers<void>();
  harness.runner.onDelete = () => gate.promise;
  await harness.startControl();
  assert.equal((await harness.call('GET', '/healthz')).status, 200);
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.status, 'creating');
  await harness.create();
  gate.resolve();
  await harness.waitForRecord(id, (record) => record.status_reason === 'control_restarted');
});

test('the end of one sandbox is committed while the end of another is under way', async () => {
  await using harness = await startHarness();
  const stuck = await harness.create();
  const other = await harness.create();
  const gate = Promise.withResolvers<void>();
  harness.runner.onDelete = () => gate.promise;
  const destroyed = harness.call('DELETE', `/v1/runs/${stuck.id}`);
  await waitFor('the destroy', () => harness.runner.requests.some((request) => request.startsWith('DELETE')));
  harness.runner.endVm(stuck.id, 'guest_shutdown');
  harness.runner.endVm(other.id, 'guest_panic');
  await harness.waitForRecord(other.id, (record) => record.status_reason === 'guest_panic');
  assert.equal(harness.runner.ends.size, 2, 'no end may be acknowledged before the first');
  gate.resolve();
  await destroyed;
  await waitFor('both to be acknowledged', () => harness.runner.ends.size === 0);
});
