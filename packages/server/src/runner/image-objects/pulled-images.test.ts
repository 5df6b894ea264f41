/** Images of a real registry that one runner pulls and others fetch from the object store, through the real programs. */
import assert from 'node:assert/strict';
import { readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { AppError, parseImageReference } from '@coppice/contract';
import { pino } from 'pino';
import { EVERYONE } from '../../lib/protocol/capture-protocol.ts';
import { CacheLeases } from '../cache/cache-leases.ts';
import type { ImageStore } from '../image/store/image-store.ts';
import type { PrepareStep } from '../image/store/image-store.types.ts';
import { HELLO, prepare, StoreSite } from '../image/testing/store-site.ts';
import { BlockServerError, type BlockServer } from '../workspace/block-server.ts';
import { DiskSite } from '../workspace/testing/disk-site.ts';
import { SharedImages, type SharedImagesParts } from './shared-images.ts';

const HELLO_AT = 'test/hello:1';
const log = pino({ level: 'silent' });
let site: StoreSite;
let disks: DiskSite;
let server: BlockServer;
const opened = new AsyncDisposableStack();

before(async () => {
  site = await StoreSite.start();
  opened.defer(() => site.close());
  disks = opened.use(new DiskSite());
  server = opened.use(disks.openServer());
});
after(() => opened.disposeAsync());

interface TestRunner {
  store: ImageStore;
  shared: SharedImages;
}

async function openRunner(more: Partial<SharedImagesParts> = {}): Promise<TestRunner> {
  const leases = new CacheLeases();
  const fetchPulled: SharedImages['fetchPulled'] = (wanted) => runner.shared.fetchPulled(wanted);
  const store = opened.use(await site.openStore({ leases, fetchPulled }));
  const shared = new SharedImages({
    images: store.stored,
    server,
    isShared: true,
    leases,
    makeRoom: async () => undefined,
    onStored: () => undefined,
    log,
    ...more,
  });
  const runner = { store, shared };
  return runner;
}

/** Empties the layers of an image at the registry, which still has its manifest, so that a pull fails. Returns the undo. */
function emptyLayers(digest: string): () => void {
  const pathOf = (of: string): string => {
    const hex = of.replace('sha256:', '');
    const blobs = join(site.registry.dataDirectory, 'docker/registry/v2/blobs/sha256');
    return join(blobs, hex.slice(0, 2), hex, 'data');
  };
  const { layers } = JSON.parse(readFileSync(pathOf(digest), 'utf8')) as { layers: { digest: string }[] };
  const paths = layers.map((layer) => pathOf(layer.digest));
  const contents = paths.map((path) => readFileSync(path));
  for (const path of paths) truncateSync(path);
  return () => paths.forEach((path, index) => writeFileSync(path, contents[index] ?? ''));
}

test('an image that one runner has pulled is fetched by another, of the same repository only', async () => {
  const [one, other] = [await openRunner(), await openRunner()];
  const image = await prepare(one.store, HELLO_AT);
  const { sent_bytes } = await one.shared.store(image.digest, EVERYONE);
  assert.ok(sent_bytes > 0);
  await site.push('test/copy:1', HELLO);
  const restore = emptyLayers(image.digest);
  try {
    await assert.rejects(prepare(other.store, 'test/copy:1'), AppError, 'it has to be pulled');
    const steps: PrepareStep[] = [];
    const fetched = await other.store.prepare(parseImageReference(HELLO_AT), {
      onStep: (step) => steps.push(step),
    });
    assert.deepEqual(steps, ['resolve', 'pull']);
    assert.deepEqual(
      [fetched.reference, fetched.config, fetched.sizeBytes],
      [image.reference, image.config, image.sizeBytes],
    );
    assert.deepEqual(readFileSync(fetched.path), readFileSync(image.path));
    assert.equal(statSync(fetched.path).mode & 0o777, 0o444);
    assert.deepEqual(other.store.list(), [fetched]);
    await assert.rejects(prepare(other.store, 'test/copy:1'), AppError, 'nor does it serve it now');
  } finally {
    restore();
  }
  assert.equal((await prepare(other.store, 'test/copy:1')).digest, image.digest);
});

test('what is not stored, damaged in the store or without a store is pulled; a full disk is told', async () => {
  const descriptor = await site.push('test/plain:1', {
    layers: [{ entries: [{ path: 'p', content: 'p'.repeat(5000) }] }],
  });
  const one = await openRunner();
  const image = await prepare(one.store, 'test/plain:1');
  assert.equal(image.digest, descriptor.digest);
  const pullBy = async (runner: TestRunner): Promise<PrepareStep[]> => {
    const steps: PrepareStep[] = [];
    const onStep = (step: PrepareStep) => steps.push(step);
    const got = await runner.store.prepare(parseImageReference('test/plain:1'), { onStep });
    assert.equal(got.digest, image.digest);
    return steps;
  };
  assert.deepEqual(await pullBy(await openRunner()), ['resolve', 'pull', 'flatten']);
  await one.shared.store(image.digest, EVERYONE);
  assert.deepEqual(await pullBy(await openRunner({ isShared: false })), ['resolve', 'pull', 'flatten']);
  const makeRoom = async (): Promise<void> => {
    throw new AppError('capacity', 'the disk is full');
  };
  await assert.rejects(pullBy(await openRunner({ makeRoom })), { code: 'capacity' });
  assert.deepEqual(await pullBy(await openRunner()), ['resolve', 'pull']);
  for (const path of disks.listObjects().filter((each) => each.includes(EVERYONE)))
    truncateSync(path, statSync(path).size >> 1);
  assert.equal((await pullBy(await openRunner())).at(-1), 'flatten');
});

test('after a failure of the store, images are pulled for a while without asking it', async () => {
  await site.push('test/later:1', { layers: [{ entries: [{ path: 'l', content: 'later' }] }] });
  let asked = 0;
  const away: SharedImagesParts['server'] = {
    transferCommand: (kind) => server.transferCommand(kind),
    ask: async () => {
      asked += 1;
      throw new BlockServerError('away', 'the object store is away');
    },
  };
  const runner = await openRunner({ server: away });
  for (const name of ['test/later:1', 'test/plain:1']) await prepare(runner.store, name);
  assert.equal(asked, 1);
});

test('an image that this runner lacks, and one that an organization built, are not stored for everyone', async () => {
  const one = await openRunner();
  const digest = `sha256:${'1'.repeat(64)}`;
  await assert.rejects(one.shared.store(digest, EVERYONE), { code: 'image_not_found' });
  await using staging = await one.store.stored.makeStaging();
  writeFileSync(join(staging.path, 'image.squashfs'), 'x');
  await one.store.stored.publish(staging.path, {
    digest,
    sizeBytes: 1,
    config: { env: {}, user: '', workdir: '' },
    reference: { name: `built/image@${digest}`, isAnonymous: false },
    owner: { organization: 'org', build: 'build1' },
  });
  await assert.rejects(one.shared.store(digest, EVERYONE), { code: 'image_not_found' });
});
