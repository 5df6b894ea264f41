/**
 * Two services that share one bucket and know the same disks, as after a restore of the database on another host. At
 * most one of them has a disk, whatever happens to the other.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ObjectServer } from '../../packages/server/src/lib/objects/testing/object-server.ts';
import type { Answer } from '../fixtures/api/api.ts';
import { DiskApi } from '../fixtures/disks/disk-api.ts';
import { checkStoredDisk, findDisk } from '../fixtures/disks/disk-content.ts';
import { blockServerPids } from '../fixtures/disks/disk-crash.ts';
import { listObjects, storeIn } from '../fixtures/disks/disk-store.ts';
import { findPrepared, startPrepared } from '../fixtures/service/prepared-service.ts';
import { Service } from '../fixtures/service/service.ts';

const LEASE_MS = 60_000;
/** The first service, which is stopped, notices after that time at the latest that it lost a disk. */
const NOTICE_MS = 60_000;
const BODY = { image: 'coppice/base:1', mem_mib: 256, timeout: 0 };

describe('two services that share a store of disks', { concurrency: false }, () => {
  const made = new AsyncDisposableStack();
  let server: ObjectServer;
  let first: DiskApi;
  let second: DiskApi;

  before(async () => {
    server = made.use(await ObjectServer.start());
    const env = storeIn(server);
    const one = made.use(await startPrepared({ instance: 14, env }));
    first = new DiskApi(one);
    for (const name of ['wanted', 'stopped', 'killed']) await first.create(name);
    await one.stop();
    const prepare = await findPrepared();
    const two = made.use(
      await Service.start({
        instance: 15,
        env,
        prepare: (dataDir) => {
          prepare(dataDir);
          const control = join(dataDir, 'control');
          rmSync(control, { recursive: true, force: true });
          execFileSync('cp', ['--archive', join(one.dataDir, 'control'), control]);
        },
      }),
    );
    second = new DiskApi(two);
    await one.launch();
  });
  after(() => made.disposeAsync());

  const attachBy = (disks: DiskApi, disk: string): Promise<Answer> =>
    disks.api.call('POST', '/v1/runs', { body: { ...BODY, disk } });
  const chainOf = (name: string): string[] => {
    const { organization, disk } = findDisk(second.service, name);
    return [...listObjects(server.bucketDirectory).keys()]
      .filter((key) => key.startsWith(`disks/${organization}/${disk}/`))
      .toSorted();
  };

  it('of two sandboxes that want a disk at the same time exactly one gets it', async () => {
    const answers = await Promise.all([attachBy(first, 'wanted'), attachBy(second, 'wanted')]);
    const [winner, loser] = answers.toSorted((a, b) => a.status - b.status);
    assert.equal(winner?.status, 201, winner?.text);
    assert.equal(loser?.status, 409, loser?.text);
    assert.match(loser.text, /disk_in_use/u);
    const [holder, other] = answers[0] === winner ? [first, second] : [second, first];
    const id = String(winner.body['id']);
    await holder.run(id, 'echo of the winner > /workspace/file');
    await holder.destroy(id, 'wanted');
    const next = await attachBy(other, 'wanted');
    assert.equal(next.status, 201, next.text);
    assert.equal((await other.sandbox(String(next.body['id']))).disk?.recovered, null);
    assert.equal(await other.run(String(next.body['id']), 'cat /workspace/file'), 'of the winner');
    await other.destroy(String(next.body['id']), 'wanted');
  });

  it('a service that stood still for longer than its lease writes nothing more, and its sandbox ends', async () => {
    const id = await first.attach('stopped');
    await first.run(id, 'echo drained > /workspace/file');
    await first.flush('stopped');
    const { service } = first;
    const runner = readFileSync(join(service.dataDir, 'runner', 'workspaces', 'runner-id'), 'utf8');
    const isByFirst = (key: string): boolean =>
      readFileSync(join(server.bucketDirectory, key), 'utf8').includes(runner);
    assert.ok(isByFirst(chainOf('stopped').at(-1) ?? ''));
    const { supervisor, server: blocks } = blockServerPids(service);
    const pids = [service.rolePid('runner'), supervisor, blocks];
    // The guest is not stopped: it writes to its overlay until the runner wakes up.
    await first.run(
      id,
      'setsid sh -c "while :; do echo lost > /workspace/file; sync; sleep 0.1; done" > /dev/null 2>&1 < /dev/null &',
    );
    for (const pid of pids) process.kill(pid, 'SIGSTOP');
    try {
      const answer = await attachBy(second, 'stopped');
      assert.equal(answer.status, 201, answer.text);
      const taken = String(answer.body['id']);
      const { recovered } = (await second.sandbox(taken)).disk ?? {};
      assert.ok(recovered !== null && recovered !== undefined && recovered.version > 0);
      assert.equal(await second.run(taken, 'cat /workspace/file'), 'drained');
      await second.run(taken, 'echo of the second > /workspace/file');
      await second.flush('stopped');
      const chain = chainOf('stopped');
      for (const pid of pids) process.kill(pid, 'SIGCONT');
      await service.waitFor('the end of the first sandbox', NOTICE_MS, async () => {
        const status = await first.sandbox(id).then(
          (record) => record.status,
          () => 'unknown',
        );
        return status === 'failed';
      });
      await service.waitFor('the end of its VM', NOTICE_MS, () => service.vmPids().length === 0);
      const later = chainOf('stopped').filter((key) => !chain.includes(key));
      assert.deepEqual(later.filter(isByFirst), [], 'the first service wrote no manifest');
      assert.equal(
        await second.run(taken, 'echo 3 > /proc/sys/vm/drop_caches; cat /workspace/file'),
        'of the second',
      );
      await second.destroy(taken, 'stopped');
      await checkStoredDisk(second.service, findDisk(second.service, 'stopped'));
      await first.untilFree('stopped');
    } finally {
      for (const pid of pids) tryContinue(pid);
    }
  });

  it('after the loss of a host another service continues from the last version, and says so', async () => {
    const id = await first.attach('killed');
    await first.run(id, 'echo drained > /workspace/file');
    const { drained_at: drainedAt, drained_version: version } = await first.flush('killed');
    await first.run(id, 'echo lost > /workspace/file; sync');
    await first.service.cutPower();
    rmSync(join(first.service.dataDir, 'runner', 'workspaces'), { recursive: true });

    const startedAt = performance.now();
    const answer = await attachBy(second, 'killed');
    const tookMs = performance.now() - startedAt;
    assert.equal(answer.status, 201, answer.text);
    assert.ok(tookMs > LEASE_MS - 1000 && tookMs < 2 * LEASE_MS, `${tookMs} ms`);
    const { recovered } = (await second.sandbox(String(answer.body['id']))).disk ?? {};
    assert.ok(recovered !== null && recovered !== undefined, answer.text);
    assert.ok(recovered.version >= version, `${recovered.version} of ${version}`);
    assert.equal(recovered.drained_at, drainedAt);
    assert.equal(await second.run(String(answer.body['id']), 'cat /workspace/file'), 'drained');
    await second.destroy(String(answer.body['id']), 'killed');
    await checkStoredDisk(second.service, findDisk(second.service, 'killed'));
  });
});

function tryContinue(pid: number): void {
  try {
    process.kill(pid, 'SIGCONT');
  } catch {
    // It has ended.
  }
}
