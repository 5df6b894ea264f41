/** Families of sandboxes, and the snapshots of a family to which a sandbox can be rolled back. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { AppError, type SandboxRecord, type SandboxTree } from '@coppice/contract';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { STRETCH_USAGE } from '../testing/fakes/fake-captures.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
afterEach(() => harness.runner.captures.reset());

const post = (id: string, what: string, body?: object) =>
  harness.call('POST', `/v1/runs/${id}/${what}`, body === undefined ? {} : { body });
const forkOne = async (id: string) => ((await post(id, 'fork')).body as SandboxRecord[])[0]?.id ?? '';
const snapshotOf = async (id: string) => (await post(id, 'snapshot')).body.id as string;
const rollBack = (id: string, snapshot: string) => post(id, 'rollback', { snapshot_id: snapshot });

test('every member of a family sees the same tree, from the first ancestor down, with the ended members', async () => {
  const { id } = await harness.create();
  const child = await forkOne(id);
  const grandchild = await forkOne(child);
  const snapshot = await snapshotOf(child);
  const restored = (await harness.call('POST', '/v1/runs/restore', { body: { snapshot_id: snapshot } })).body
    .id;
  await harness.call('DELETE', `/v1/runs/${id}`);
  for (const member of [id, child, grandchild, restored]) {
    const tree = (await harness.call('GET', `/v1/runs/${member}/tree`)).body as SandboxTree;
    assert.equal(tree.root_id, id);
    assert.equal(tree.truncated, false);
    assert.deepEqual(
      tree.nodes.map((node) => [node.id, node.parent_id, node.status]),
      [
        [id, null, 'destroyed'],
        [child, id, 'running'],
        [grandchild, child, 'running'],
        [restored, child, 'running'],
      ],
    );
    assert.ok(tree.nodes[0]?.ended_at);
  }
});

test('the tree of a sandbox of another organization, or of an unknown one, is 404', async () => {
  const { id } = await harness.create();
  const apiKey = await harness.addOrganization();
  assert.equal((await harness.call('GET', `/v1/runs/${id}/tree`, { apiKey })).status, 404);
  assert.equal((await harness.call('GET', `/v1/runs/run${'0'.repeat(20)}/tree`)).status, 404);
});

test('the tree of a large family is truncated and says so', async () => {
  const { id } = await harness.create();
  {
    await using db = harness.openDatabase();
    const row = await db.selectFrom('sandboxes').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
    const children = Array.from({ length: 1000 }, (_, index) => ({
      ...row,
      id: `run${index.toString(16).padStart(20, '0')}`,
      labels: '{}',
      parent_id: id,
      status: 'failed' as const,
      ended_at: row.created_at + 1,
      created_at: row.created_at + 1,
    }));
    await db.insertInto('sandboxes').values(children).execute();
  }
  const tree = (await harness.call('GET', `/v1/runs/${id}/tree`)).body as SandboxTree;
  assert.equal(tree.nodes.length, 1000);
  assert.equal(tree.nodes[0]?.id, id);
  assert.equal(tree.truncated, true);
});

test('a rollback is in place: the sandbox keeps its id, and the usage of the replaced VM counts', async () => {
  const { id } = await harness.create();
  const snapshot = await snapshotOf(id);
  const answer = await rollBack(id, snapshot);
  assert.equal(answer.status, 200);
  assert.equal(answer.body.id, id);
  assert.equal(answer.body.status, 'running');
  assert.equal(answer.body.operation, null);
  assert.equal((await rollBack(id, snapshot)).status, 200);
  assert.equal((await post(id, 'exec', { command: 'true' })).status, 200);
  const { body } = await harness.call('DELETE', `/v1/runs/${id}`);
  assert.equal(body.cpu_ms, 2 * STRETCH_USAGE.cpu_ms + 1234);
  assert.equal(body.mem_peak_bytes, STRETCH_USAGE.mem_peak_bytes);
});

test('a fork can be rolled back to a snapshot of an ancestor, a parent not to a snapshot of a child', async () => {
  const { id } = await harness.create();
  const ofParent = await snapshotOf(id);
  const child = await forkOne(id);
  const grandchild = await forkOne(child);
  const ofChild = await snapshotOf(child);
  assert.equal((await rollBack(grandchild, ofParent)).status, 200);
  assert.equal((await rollBack(grandchild, ofChild)).status, 200);
  const refused = await rollBack(id, ofChild);
  assert.equal(refused.status, 409);
  assert.equal(refused.body.error.code, 'invalid_state');
  assert.match(refused.body.error.message, /neither this sandbox nor an ancestor/);
  const stranger = await harness.create();
  assert.equal((await rollBack(stranger.id, ofParent)).status, 409);
});

test('a rollback to an unknown snapshot, or of a sandbox of another organization, is 404', async () => {
  const { id } = await harness.create();
  const snapshot = await snapshotOf(id);
  assert.equal((await rollBack(id, `snap${'0'.repeat(20)}`)).status, 404);
  const apiKey = await harness.addOrganization();
  const options = { apiKey, body: { snapshot_id: snapshot } };
  assert.equal((await harness.call('POST', `/v1/runs/${id}/rollback`, options)).status, 404);
});

test('a failed rollback leaves the sandbox as it was, and missing files of a snapshot are reported', async () => {
  const { id } = await harness.create();
  const snapshot = await snapshotOf(id);
  harness.runner.captures.onRollback = () => {
    throw new AppError('snapshot_unusable', 'a byte of it was changed');
  };
  const damaged = await rollBack(id, snapshot);
  assert.equal(damaged.status, 409);
  assert.equal(damaged.body.error.code, 'snapshot_unusable');
  harness.runner.captures.reset();
  harness.runner.captures.saved.delete(snapshot);
  const gone = await rollBack(id, snapshot);
  assert.equal(gone.body.error.code, 'snapshot_unusable');
  assert.equal((await post(id, 'exec', { command: 'true' })).status, 200);
});

test('a rollback of a VM that is gone detects the loss', async () => {
  const { id } = await harness.create();
  const snapshot = await snapshotOf(id);
  harness.runner.captures.onRollback = () => {
    harness.runner.vms.delete(id);
    throw new AppError('not_found', 'there is no such VM');
  };
  assert.equal((await rollBack(id, snapshot)).status, 409);
  await harness.waitForRecord(id, (record) => record.status_reason === 'vm_lost');
});

test('a use waits for a rollback under way', async () => {
  const { id } = await harness.create();
  const snapshot = await snapshotOf(id);
  const gate = Promise.withResolvers<void>();
  harness.runner.captures.onRollback = () => gate.promise;
  const rolling = rollBack(id, snapshot);
  await harness.waitForRecord(id, (record) => record.operation === 'rolling_back');
  let isServed = false;
  const used = post(id, 'exec', { command: 'true' }).finally(() => (isServed = true));
  await waitFor('another answer', async () => (await harness.call('GET', '/v1/runs')).status === 200);
  assert.equal(isServed, false);
  gate.resolve();
  assert.equal((await rolling).status, 200);
  assert.equal((await used).status, 200);
});
