/** Hibernated sandboxes and images in a bucket, of two runners: the other one has them, too. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { Coppice, type Sandbox } from '../../packages/sdk/src/index.ts';
import { ObjectServer } from '../../packages/server/src/lib/objects/testing/object-server.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { storeIn } from '../fixtures/disks/disk-store.ts';
import { startRegistry } from '../fixtures/images/registry.ts';
import { pushTinyImage } from '../fixtures/images/tiny-image.ts';
import { Cluster, type Machine } from '../fixtures/machines/cluster.ts';
import { API_KEY } from '../fixtures/service/service.ts';

const DISK = 'moved';
const PULLED = 'e2e/pulled:1';
const SANDBOX = { image: 'coppice/base:1', memMiB: 256, timeout: 0, autoHibernate: true, disk: DISK };
/** Counts in the memory of a process that nothing else writes. */
const COUNT = `nohup sh -c 'echo $$ > /root/pid; n=0; while :; do n=$((n+1)); echo $n > /dev/shm/n; sleep 0.1; done' >/dev/null 2>&1 &`;
const READ = 'kill -0 $(cat /root/pid) && cat /dev/shm/n && cat /workspace/note';
/** Includes the upload of what the sandbox has in memory. */
const MOVE_MS = 120_000;
const POLL_MS = 500;

describe('hibernated sandboxes of two runners', { concurrency: false }, () => {
  const made = new AsyncDisposableStack();
  let cluster: Cluster;
  let two: Coppice;
  let sandbox: Sandbox;
  let since = 0;
  /** Of the image of a registry. */
  let digest = '';

  const vmsOf = ({ installation }: Machine): number => installation.vmPids().length;
  /** The runner with the VM of the only sandbox, and the other one. */
  const places = (): [Machine, Machine] => {
    const [one, other] = cluster.runners;
    assert.equal(vmsOf(one) + vmsOf(other), 1);
    return vmsOf(one) === 1 ? [one, other] : [other, one];
  };
  const count = async (): Promise<number> => {
    const { exitCode, stdout, stderr } = await sandbox.exec(READ);
    assert.equal(exitCode, 0, stderr);
    const [n = '', note] = stdout.split('\n');
    assert.equal(note, 'kept');
    return Number(n);
  };
  /** Wakes it by a command until it answers, and checks that its process has continued. */
  const wake = async (): Promise<void> => {
    let refusal: unknown;
    const n = await pollUntil({ step: 'the wake', timeoutMs: MOVE_MS, intervalMs: POLL_MS }, () =>
      count().catch((error: unknown) => {
        refusal = error;
        return undefined;
      }),
    ).catch((error: unknown) => {
      throw refusal ?? error;
    });
    assert.ok(n > since, `${n} after ${since}`);
  };

  before(async () => {
    const server = made.use(await ObjectServer.start());
    const directory = mkdtempSync('/var/tmp/coppice-e2e-registry-');
    made.defer(() => rmSync(directory, { recursive: true, force: true }));
    const registry = made.use(await startRegistry({ directory }));
    digest = await pushTinyImage(registry, { name: PULLED, programs: ['/bin/sh', '/bin/cat'] });
    const env = { ...storeIn(server), COPPICE_REGISTRY_MIRRORS: `docker.io=${registry.url}` };
    cluster = made.use(await Cluster.start({ env }));
    two = new Coppice({ baseUrl: cluster.controls[1].address, apiKey: API_KEY });
    await pollUntil({ step: 'the disk', timeoutMs: MOVE_MS, intervalMs: POLL_MS }, async () =>
      (await createDisk(cluster.controls[0])) === 201 ? true : undefined,
    );
    sandbox = await pollUntil({ step: 'room', timeoutMs: MOVE_MS, intervalMs: POLL_MS }, async () =>
      two.sandboxes.create(SANDBOX).catch(() => undefined),
    );
    await sandbox.exec('echo kept > /workspace/note && sync');
    await sandbox.exec(COUNT);
  });
  after(() => made.disposeAsync());

  it('when its runner is killed it resumes at the other one, and the former runner never starts it again', async () => {
    const [from, to] = places();
    since = await count();
    await sandbox.hibernate();
    await pollUntil({ step: 'the upload', timeoutMs: MOVE_MS, intervalMs: POLL_MS }, () =>
      /capture stored/u.test(from.log) ? true : undefined,
    );
    await from.kill();
    await wake();
    assert.deepEqual([vmsOf(from), vmsOf(to)], [0, 1]);
    from.start();
    const connected = (): number => cluster.controls[0].log.split('the runner is connected').length;
    const before = connected();
    await pollUntil({ step: 'the connection', timeoutMs: MOVE_MS, intervalMs: POLL_MS }, () =>
      connected() > before ? true : undefined,
    );
    assert.deepEqual([vmsOf(from), vmsOf(to)], [0, 1]);
    since = await count();
  });

  it('when its runner is drained it hibernates, and a command wakes it at the other one', async () => {
    const [from, to] = places();
    const id = idOf(from);
    assert.match(cluster.controls[1].runAdmin('runner', 'drain', id, '--minutes', '2'), /has no VM/u);
    await pollUntil({ step: 'the upload', timeoutMs: MOVE_MS, intervalMs: POLL_MS }, () =>
      /capture stored/u.test(from.log) ? true : undefined,
    );
    await pollUntil({ step: 'the move', timeoutMs: MOVE_MS, intervalMs: POLL_MS }, async () => {
      await wake();
      return vmsOf(to) === 1 ? true : undefined;
    });
    assert.deepEqual([vmsOf(from), vmsOf(to)], [0, 1]);
    cluster.controls[1].runAdmin('runner', 'uncordon', id);
    await sandbox.destroy();
    assert.deepEqual([vmsOf(from), vmsOf(to)], [0, 0]);
  });

  it('an image from steps is used at the other runner when the one that built it is away, until it is deleted', async () => {
    const built = await two.builds.run({
      name: 'app:1',
      from: 'coppice/base:1',
      steps: [{ run: 'echo of a step > /root/built' }],
    });
    assert.equal(built.status, 'done', JSON.stringify(built));
    const from = cluster.runners.find(({ log }) => log.includes('image built'));
    assert.ok(from);
    await pollUntil({ step: 'the upload', timeoutMs: MOVE_MS, intervalMs: POLL_MS }, () =>
      from.log.includes('image stored') ? true : undefined,
    );
    await from.kill();
    const image = { image: 'built/app:1', memMiB: 256, timeout: 0 };
    for (const control of cluster.controls) {
      const client = new Coppice({ baseUrl: control.address, apiKey: API_KEY });
      const made = await pollUntil({ step: 'the create', timeoutMs: MOVE_MS, intervalMs: POLL_MS }, () =>
        client.sandboxes.create(image).catch(() => undefined),
      );
      assert.ok((await client.images.list()).some((listed) => listed.image.startsWith('built/app:1@')));
      assert.equal((await made.exec('cat /root/built')).stdout, 'of a step\n');
      await made.destroy();
    }
    const other = cluster.runners.find((runner) => runner !== from);
    assert.equal(other?.log.split('image fetched').length, 2, 'once for both');
    from.start();
    await two.images.delete('app:1');
    await pollUntil({ step: 'its removal', timeoutMs: MOVE_MS, intervalMs: POLL_MS }, () =>
      cluster.controls.some(({ log }) => log.includes('an image was removed from the object store'))
        ? true
        : undefined,
    );
  });

  /** Whether the log has this message about the image of a registry. */
  const says = ({ log }: Machine, message: string): boolean =>
    log.split('\n').some((line) => line.includes(digest) && line.includes(message));

  it('an image of a registry is pulled by one runner, and fetched by the other', async () => {
    const image = { image: PULLED, memMiB: 256, timeout: 0 };
    const first = await two.sandboxes.create(image);
    const [from, to] = places();
    await first.destroy();
    await pollUntil({ step: 'the upload', timeoutMs: MOVE_MS, intervalMs: POLL_MS }, () =>
      says(from, 'image stored') ? true : undefined,
    );
    await from.kill();
    const second = await pollUntil({ step: 'the create', timeoutMs: MOVE_MS, intervalMs: POLL_MS }, () =>
      two.sandboxes.create(image).catch(() => undefined),
    );
    assert.equal((await second.exec('cat /etc/tiny-image')).stdout, PULLED);
    assert.deepEqual([says(to, 'image fetched'), says(to, 'image prepared')], [true, false]);
    await second.destroy();
    from.start();
  });

  /** Id of a runner: the one that has the VM. */
  function idOf(machine: Machine): string {
    assert.equal(vmsOf(machine), 1);
    const listed = JSON.parse(cluster.controls[1].runAdmin('runner', 'list', '--json')) as {
      id: string;
      vms: number;
    }[];
    const found = listed.find(({ vms }) => vms === 1);
    assert.ok(found);
    return found.id;
  }
});

async function createDisk({ address }: Machine): Promise<number> {
  const { status } = await fetch(`${address}/v1/disks`, {
    method: 'POST',
    headers: { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: DISK, size_gb: 1 }),
  });
  return status;
}
