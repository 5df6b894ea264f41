/**
 * Snapshots and hibernated sandboxes in a bucket of a real S3 server: they are put there in the background, and restored
 * from there by a runner that has no copy, of the same service or of another one with the same records.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ObjectServer } from '../../packages/server/src/lib/objects/testing/object-server.ts';
import { Api } from '../fixtures/api/api.ts';
import { flipByte } from '../fixtures/captures/capture-damage.ts';
import { CountingGuest } from '../fixtures/captures/capture-guest.ts';
import { listTransfers, StoredCaptures } from '../fixtures/captures/stored-captures.ts';
import { CloneApi } from '../fixtures/clones/clone-api.ts';
import { storeIn } from '../fixtures/disks/disk-store.ts';
import { findPrepared, startPrepared } from '../fixtures/service/prepared-service.ts';
import { Service } from '../fixtures/service/service.ts';

const NOISE_MIB = 96;
const TRANSFER_MS = 60_000;
/** Two passes of the collector, and what is reconciled before each. */
const COLLECTION_MS = 180_000;

describe('captures in the object store', { concurrency: false }, () => {
  const made = new AsyncDisposableStack();
  let server: ObjectServer;
  let service: Service;
  let api: Api;
  let clones: CloneApi;
  let stored: StoredCaptures;

  before(async () => {
    server = made.use(await ObjectServer.start());
    service = made.use(await startPrepared({ instance: 16, env: storeIn(server) }));
    api = new Api(service);
    clones = new CloneApi(api);
    stored = made.use(new StoredCaptures(service, server.bucketDirectory));
  });
  after(() => made.disposeAsync());

  /** Writes random bytes to memory and to the disk, and returns a command that prints their sums. */
  const fill = async (id: string, mib: number): Promise<string> => {
    const write = `head -c ${mib}M /dev/urandom > /dev/shm/noise && head -c 8M /dev/urandom > /workspace/noise && sync`;
    const { exit_code, stderr } = await api.exec(id, write, { timeout: 120 });
    assert.equal(exit_code, 0, stderr);
    return 'echo 3 > /proc/sys/vm/drop_caches; sha256sum /dev/shm/noise /workspace/noise';
  };
  const run = async (id: string, command: string): Promise<string> =>
    (await api.exec(id, command, { timeout: 120 })).stdout.trim();

  it('a snapshot without a local copy is fetched, with the content of memory and disk', async () => {
    const guest = await CountingGuest.create(api);
    const sums = await fill(guest.id, 16);
    const expected = await run(guest.id, sums);
    const since = await guest.count();
    const id = await clones.snapshot(guest.id);
    const { stored_bytes: bytes } = await stored.untilStored(id);
    assert.ok(bytes > 24 << 20, `${bytes} bytes are stored`);
    await stored.drop(id);
    const restored = new CountingGuest(api, (await clones.restore(id)).id);
    await restored.waitUntilCounting(since);
    assert.equal(await run(restored.id, sums), expected);
    assert.ok((await stored.state(id)).local, 'the fetched copy is kept');

    const second = await clones.snapshot(guest.id);
    const chunks = stored.listKeys('chunks').length;
    await stored.untilStored(second);
    const added = stored.listKeys('chunks').length - chunks;
    assert.ok(added < chunks / 2, `of a second snapshot ${added} chunks were stored, of the first ${chunks}`);
    await restored.destroy();
    await guest.destroy();
    for (const each of [id, second]) await clones.deleteSnapshot(each);
  });

  it('a hibernated sandbox without a local copy resumes, and a rollback fetches its snapshot', async () => {
    const guest = await CountingGuest.create(api);
    await guest.mark('snapshot');
    const snapshot = await clones.snapshot(guest.id);
    await stored.untilStored(snapshot);
    await guest.mark('later');
    const since = await guest.count();
    await clones.hibernate(guest.id);
    const captures = join(service.dataDir, 'runner', 'captures');
    const hibernation = readdirSync(captures).find((name) => name.startsWith('hib'));
    assert.ok(hibernation !== undefined);
    await stored.untilStored(hibernation);
    await stored.drop(hibernation);
    await clones.resume(guest.id);
    await guest.waitUntilCounting(since);
    assert.equal(await guest.readMark(), 'later');
    await stored.drop(snapshot);
    await clones.rollback(guest.id, snapshot);
    assert.equal(await guest.readMark(), 'snapshot');
    await guest.destroy();
    await clones.deleteSnapshot(snapshot);
  });

  it('an upload whose process is killed continues, and sends nothing twice', async () => {
    const guest = await CountingGuest.create(api);
    const sums = await fill(guest.id, NOISE_MIB);
    const expected = await run(guest.id, sums);
    const known = new Set(stored.listKeys('chunks'));
    const id = await clones.snapshot(guest.id);
    // Those of deleted snapshots may go meanwhile.
    const listAdded = (): string[] => stored.listKeys('chunks').filter((path) => !known.has(path));
    await service.waitFor('some chunks', TRANSFER_MS, () => listAdded().length > 8);
    const [pid] = listTransfers(service, 'store');
    assert.ok(pid !== undefined, 'the upload ended before it could be killed');
    process.kill(pid, 'SIGKILL');
    await stored.untilStored(id);
    const sumsOf = listAdded().map((path) => basename(path).split('.')[0]);
    assert.equal(new Set(sumsOf).size, sumsOf.length, 'a chunk was stored twice');
    await stored.drop(id);
    const restored = new CountingGuest(api, (await clones.restore(id)).id);
    assert.equal(await run(restored.id, sums), expected);
    await restored.destroy();
    await guest.destroy();
    await clones.deleteSnapshot(id);
  });

  it('a damaged or a missing chunk is reported with the name of the snapshot, and nothing is started', async () => {
    const guest = await CountingGuest.create(api);
    await fill(guest.id, 8);
    const known = new Set(stored.listKeys('chunks'));
    const id = await clones.snapshot(guest.id);
    await stored.untilStored(id);
    const chunk = stored.listKeys('chunks').find((path) => !known.has(path));
    assert.ok(chunk !== undefined);
    await stored.drop(id);
    const vms = service.vmPids().length;
    for (const damage of [() => flipByte(chunk, 100), () => rmSync(chunk)]) {
      damage();
      const answer = await api.call('POST', '/v1/runs/restore', { body: { snapshot_id: id } });
      assert.equal(answer.status, 409, answer.text);
      assert.match(answer.text, new RegExp(`snapshot_unusable.*${id}`, 'u'));
      assert.equal(service.vmPids().length, vms);
    }
    const partial = readdirSync(join(service.dataDir, 'runner', 'captures')).filter((name) =>
      name.includes(id),
    );
    assert.deepEqual(partial, []);
    await guest.destroy();
    await clones.deleteSnapshot(id);
  });

  it('while the object store is away snapshots are taken and restored locally, and stored afterwards', async () => {
    const guest = await CountingGuest.create(api);
    await server.stop();
    const id = await clones.snapshot(guest.id);
    const restored = new CountingGuest(api, (await clones.restore(id)).id);
    await restored.destroy();
    await server.resume();
    await stored.untilStored(id);
    await guest.destroy();
    await clones.deleteSnapshot(id);
  });

  it('another runner restores a snapshot, without the image and without the first runner', async () => {
    const guest = await CountingGuest.create(api);
    const sums = await fill(guest.id, 8);
    const expected = await run(guest.id, sums);
    const since = await guest.count();
    const id = await clones.snapshot(guest.id);
    await stored.untilStored(id);
    await service.waitFor('the note of it', TRANSFER_MS, () =>
      service.output.includes('is in the object store'),
    );
    await service.stop();
    const prepare = await findPrepared();
    await using second = await Service.start({
      instance: 17,
      env: storeIn(server),
      prepare: (dataDir) => {
        prepare(dataDir);
        const control = join(dataDir, 'control');
        rmSync(control, { recursive: true, force: true });
        execFileSync('cp', ['--archive', join(service.dataDir, 'control'), control]);
        for (const part of ['images', 'templates'])
          rmSync(join(dataDir, 'runner', part), { recursive: true, force: true });
      },
    });
    const elsewhere = new Api(second);
    const restored = new CountingGuest(elsewhere, (await new CloneApi(elsewhere).restore(id)).id);
    await restored.waitUntilCounting(since);
    const { stdout } = await elsewhere.exec(restored.id, sums, { timeout: 120 });
    assert.equal(stdout.trim(), expected);
    await restored.destroy();
    await second.stop();
    await service.launch();
  });

  it('the objects of deleted snapshots go', async () => {
    const guest = await CountingGuest.create(api);
    await fill(guest.id, 8);
    const known = new Set(stored.listKeys('chunks'));
    const id = await clones.snapshot(guest.id);
    await stored.untilStored(id);
    const own = stored.listKeys('chunks').filter((path) => !known.has(path));
    assert.ok(own.length > 8);
    await guest.destroy();
    await clones.deleteSnapshot(id);
    await service.waitFor('the collection', COLLECTION_MS, () => !own.some((path) => existsSync(path)));
    assert.deepEqual(stored.listKeys('uploads'), []);
  });
});
