/** Sandboxes whose disk is forked from one that a runner of another control holds. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { TwoControls } from '../testing/controls/two-controls.ts';

let both: TwoControls;
/** The sandbox of the other control with the disk `data`, which has a snapshot `v1`. */
let holder = '';
before(async () => {
  both = await TwoControls.start({ runnerOutageDeadlineMs: 500 });
  const { other } = both;
  assert.equal((await other.call('POST', '/v1/disks', { body: { name: 'data', size_gb: 5 } })).status, 201);
  const saved = await other.call('POST', '/v1/disks/data/snapshots', { body: { name: 'v1' } });
  assert.equal(saved.status, 201);
  ({ id: holder } = await other.create({ disk: 'data' }));
});
after(() => both[Symbol.asyncDispose]());

const list = async (path: string): Promise<{ id: string; name: string }[]> =>
  (await both.one.call('GET', path)).body;
const createFork = (disk: string) =>
  both.one.call('POST', '/v1/runs', {
    body: { image: 'node:22-slim', fork_from_disk: 'data', disk_snapshot: 'v1', disk },
  });

test('a create goes to that control before anything is written', async () => {
  const made = await createFork('made');
  assert.equal(made.status, 201, JSON.stringify(made.body));
  assert.equal(made.body.disk.name, 'made');
  assert.ok(both.other.runner.vms.has(made.body.id));
  assert.deepEqual(await list('/v1/runs?status=failed'), []);
});

test('a restore goes there although the capture is here, if it is stored', async () => {
  const { one, other } = both;
  await using db = one.openDatabase();
  const { body: snapshot } = await other.call('POST', `/v1/runs/${holder}/snapshot`, { body: {} });
  // As after a move of the sandbox.
  const runner_id = one.runner.id;
  const moved = db.updateTable('snapshots').set({ runner_id }).where('id', '=', snapshot.id);
  await moved.execute();
  const body = { snapshot_id: snapshot.id, disk: 'restored' };
  const refused = await one.call('POST', '/v1/runs/restore', { body });
  assert.deepEqual([refused.status, refused.body.error.code], [503, 'unavailable']);
  assert.match(refused.body.error.message, /^the snapshot is only at .* try again when the disk is free$/u);
  const { organization_id } = await db
    .selectFrom('sandboxes')
    .select('organization_id')
    .where('id', '=', holder)
    .executeTakeFirstOrThrow();
  const stored = { capture_id: snapshot.id, organization_id, runner_id, created_at: 1, stored_at: 2 };
  await db.insertInto('capture_objects').values(stored).execute();
  const restored = await one.call('POST', '/v1/runs/restore', { body });
  assert.equal(restored.status, 201, JSON.stringify(restored.body));
  assert.ok(other.runner.vms.has(restored.body.id));
  assert.deepEqual(await list('/v1/runs?status=failed'), []);
});

test('a create whose parent is taken there meanwhile fails, and is not made twice', async () => {
  const { one, other } = both;
  await using db = one.openDatabase();
  const attach = (sandbox: string | null) =>
    db
      .updateTable('disks')
      .set({ sandbox_id: sandbox, attachment: sandbox === null ? null : 'attached' })
      .where('name', '=', 'data')
      .execute();
  await attach(null);
  one.runner.disks.onRequest = async (what) => {
    if (what !== 'POST fork') return;
    await attach(holder);
    throw new AppError('unavailable', 'the runner restarts');
  };
  const vms = other.runner.vms.size;
  const refused = await createFork('late');
  assert.deepEqual([refused.status, refused.body.error.code], [503, 'unavailable']);
  assert.match(refused.body.error.message, /belongs to another control now; try again$/u);
  assert.equal(other.runner.vms.size, vms);
  assert.equal((await list('/v1/runs?status=failed')).length, 1);
});
