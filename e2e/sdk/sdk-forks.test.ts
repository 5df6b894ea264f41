import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Sandbox, type Coppice, type SnapshotInfo } from '../../packages/sdk/src/index.ts';
import { connect, SMALL } from '../fixtures/api/client.ts';
import { API_KEY } from '../fixtures/service/service.ts';
import { shared } from '../fixtures/service/shared.ts';

const PLACE = '/workspace/place';
/** Counts in its memory, twice a second; the file only shows the count. */
const COUNTER = 'n=0; while :; do n=$((n+1)); echo $n > /tmp/n.new; mv /tmp/n.new /tmp/n; sleep 0.5; done';

async function readCounter(sandbox: Sandbox): Promise<number> {
  return Number(await sandbox.download('/tmp/n'));
}

/** Waits until the counter is beyond `start`, which shows that its process runs. */
async function waitForCounter(sandbox: Sandbox, start: number): Promise<number> {
  const { service } = await shared();
  await service.waitFor('the counter', 30_000, async () => (await readCounter(sandbox)) > start);
  return readCounter(sandbox);
}

describe('copies of a sandbox through the client', () => {
  const resources = new AsyncDisposableStack();
  let client: Coppice;
  let parent: Sandbox;
  let children: Sandbox[];
  let snapshot: SnapshotInfo;

  before(async () => {
    client = await connect();
    parent = resources.use(await client.sandboxes.create({ ...SMALL, labels: { family: 'sdk' } }));
    await parent.upload(PLACE, 'parent');
    await parent.exec(`echo 0 > /tmp/n; (${COUNTER}) > /dev/null 2>&1 & echo $! > /tmp/counter.pid`);
    await waitForCounter(parent, 3);
  });
  after(() => resources.disposeAsync());

  it('forks into children that continue independently', async () => {
    const start = await readCounter(parent);
    children = await parent.fork(2);
    for (const child of children) resources.use(child);
    for (const { status, record } of children) {
      assert.deepEqual(
        [status, record.parentId, record.memMiB, record.labels],
        ['running', parent.id, SMALL.memMiB, { family: 'sdk' }],
      );
    }
    const all = [parent, ...children];
    assert.equal(new Set(all.map(({ id }) => id)).size, 3);
    for (const one of all) {
      await waitForCounter(one, start);
      assert.equal(await one.download(PLACE), 'parent');
    }
    for (const one of all) await one.upload(PLACE, one.id);
    for (const one of all) assert.equal(await one.download(PLACE), one.id);
  });

  it('makes one child for two forks with one key', async () => {
    const call = { idempotencyKey: `fork-${parent.id}` };
    const [child] = await parent.fork(1, call);
    resources.use(child);
    const [same] = await parent.fork(1, call);
    assert.equal(same.id, child.id);
    await child.destroy();
  });

  it('takes a snapshot and finds it in the list', async () => {
    snapshot = await parent.snapshot({ name: 'before' });
    resources.defer(async () => {
      for (const { id } of await client.snapshots.list({ runId: parent.id }))
        await client.snapshots.delete(id);
    });
    const { sizeBytes, boundTo, createdAt, ...rest } = snapshot;
    const { image, vcpus, memMiB, diskMiB } = parent.record;
    const shape = { image, vcpus, memMiB, diskMiB, disk: null };
    assert.deepEqual(rest, { id: snapshot.id, runId: parent.id, name: 'before', expiresAt: null, ...shape });
    assert.ok(sizeBytes > 0 && Object.keys(boundTo).length > 0);
    assert.ok(Math.abs(Date.parse(createdAt) - Date.now()) < 60_000);
    assert.deepEqual(await client.snapshots.list({ runId: parent.id }), [snapshot]);
    const seen: string[] = [];
    for await (const { id } of client.snapshots.list()) seen.push(id);
    assert.ok(seen.includes(snapshot.id));
  });

  it('restores with its own options', async () => {
    const { service } = await shared();
    const options = { timeout: 77, maxLifetime: 900, labels: { from: 'snapshot' }, autoHibernate: true };
    const server = { baseUrl: service.address, apiKey: API_KEY };
    const restored = resources.use(await Sandbox.restore(snapshot.id, options, server));
    const { id, parentId, timeout, maxLifetime, labels, autoHibernate } = restored.record;
    assert.notEqual(id, parent.id);
    assert.equal(parentId, parent.id);
    assert.deepEqual({ timeout, maxLifetime, labels, autoHibernate }, options);
    assert.equal(await restored.download(PLACE), parent.id);
    await waitForCounter(restored, await readCounter(restored));
    await restored.destroy();
  });

  it('hibernates and resumes under the same id', async () => {
    const [child] = children as [Sandbox];
    const start = await readCounter(child);
    const asleep = await child.hibernate();
    assert.deepEqual([asleep.id, asleep.status, child.status], [child.id, 'hibernated', 'hibernated']);
    assert.ok(Math.abs(Date.parse(asleep.hibernatedAt!) - Date.now()) < 60_000);
    await assert.rejects(child.exec('true'), { status: 409, code: 'invalid_state' });
    await assert.rejects(child.hibernate(), { status: 409, code: 'invalid_state' });
    const awake = await child.resume();
    assert.deepEqual([awake.id, awake.status, awake.hibernatedAt], [child.id, 'running', null]);
    await waitForCounter(child, start);
    assert.equal(await child.download(PLACE), child.id);
    await assert.rejects(child.resume(), { status: 409, code: 'invalid_state' });
  });

  it('resumes automatically when it is used, with autoHibernate', async () => {
    await using sandbox = await client.sandboxes.create({ ...SMALL, autoHibernate: true });
    assert.equal(sandbox.record.autoHibernate, true);
    await sandbox.upload(PLACE, 'kept');
    await sandbox.hibernate();
    assert.equal(await sandbox.download(PLACE), 'kept');
    assert.equal((await sandbox.info()).status, 'running');
  });

  it('rolls back in place', async () => {
    const loss = `kill $(cat /tmp/counter.pid) && rm ${PLACE} && echo more > /workspace/more`;
    assert.equal((await parent.exec(loss)).exitCode, 0);
    const back = await parent.rollback(snapshot.id);
    assert.deepEqual([back.id, back.status], [parent.id, 'running']);
    assert.equal(await parent.download(PLACE), parent.id);
    await assert.rejects(parent.download('/workspace/more'), { code: 'file_not_found' });
    await waitForCounter(parent, await readCounter(parent));
  });

  it('shows the family as a tree', async () => {
    const { rootId, nodes, truncated } = await children[1]!.tree();
    assert.deepEqual([rootId, truncated, nodes.length], [parent.id, false, 5]);
    assert.deepEqual([nodes[0]!.id, nodes[0]!.parentId], [parent.id, null]);
    for (const { parentId } of nodes.slice(1)) assert.equal(parentId, parent.id);
    assert.deepEqual(nodes.map(({ status }) => status).toSorted(), [
      'destroyed',
      'destroyed',
      'running',
      'running',
      'running',
    ]);
  });

  it('deletes the snapshot, which is then unusable', async () => {
    await client.snapshots.delete(snapshot.id);
    assert.deepEqual(await client.snapshots.list({ runId: parent.id }), []);
    await assert.rejects(client.snapshots.delete(snapshot.id), { status: 404, code: 'not_found' });
    await assert.rejects(client.sandboxes.restore(snapshot.id), { status: 404, code: 'not_found' });
    await assert.rejects(parent.rollback(snapshot.id), { status: 404, code: 'not_found' });
    assert.equal((await parent.exec('echo on')).stdout, 'on\n');
  });
});
