/** Tests the whole store against a real registry on a loopback port. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { AppError, parseImageReference, type ErrorCode } from '@coppice/contract';
import {
  OciLayout,
  type Descriptor,
  type ImageSpec,
} from '../../../../../../e2e/fixtures/images/oci-layout.ts';
import { startRegistry, type Registry } from '../../../../../../e2e/fixtures/images/registry.ts';
import { DEFAULT_IMAGE_LIMITS } from '../layers/image-limits.ts';
import { importLayout } from '../local/layout-import.ts';
import { LocalImages } from '../local/local-images.ts';
import type { ImageStore, ImageStoreOptions } from './image-store.ts';
import type { PrepareStep, StoredImage } from './image-store.types.ts';
import { serveImage, startServer } from '../registry/testing/test-server.ts';
import { assertNothingLeft, HELLO, prepare, StoreSite } from '../testing/store-site.ts';

let site: StoreSite;
let root: string;
let registry: Registry;
let layout: OciLayout;

before(async () => {
  site = await StoreSite.start();
  ({ root, registry, layout } = site);
});

after(() => site.close());

const push = (name: string, image: ImageSpec | Descriptor): Promise<Descriptor> => site.push(name, image);
const openStore = (change: Partial<ImageStoreOptions> = {}): Promise<ImageStore> => site.openStore(change);

async function assertRefused(work: Promise<unknown>, code: ErrorCode, pattern = /./u): Promise<void> {
  await assert.rejects(work, (error) => {
    assert(error instanceof AppError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, pattern);
    return true;
  });
}

function listSquashfs(image: StoredImage): string {
  return execFileSync('rdsquashfs', ['--describe', image.path], { encoding: 'utf8' });
}

test('an image of a mirrored registry is resolved, pulled, flattened and kept', async () => {
  const directory = await mkdtemp(join(root, 'store-'));
  await using store = await openStore({ directory });
  const steps: PrepareStep[] = [];
  const image = await store.prepare(parseImageReference('test/hello:1'), {
    onStep: (step) => steps.push(step),
  });
  assert.deepEqual(steps, ['resolve', 'pull', 'flatten']);
  assert.equal(image.reference, `docker.io/test/hello:1@${image.digest}`);
  assert.deepEqual(image.config, { env: { PATH: '/bin', LANG: 'C' }, user: '1000', workdir: '/srv' });
  const { size, mode, uid } = await stat(image.path);
  assert.deepEqual([size, mode & 0o7777, uid], [image.sizeBytes, 0o444, process.getuid?.()]);
  assert.equal(
    listSquashfs(image)
      .split('\n')
      .filter((line) => !line.includes('gone'))
      .join('\n'),
    'dir a 0755 0 0\nfile a/hello 0644 0 0\nfile plain 0644 0 0\n',
  );
  assert.deepEqual(store.list(), [image]);
  assert.deepEqual(await readdir(join(directory, 'staging')), []);
});

test('a stored image needs neither registry nor pull, also after a restart', async () => {
  const directory = await mkdtemp(join(root, 'store-'));
  const own = await startRegistry({ directory: await mkdtemp(join(root, 'registry-')) });
  const options = { directory, mirrors: { 'docker.io': own.url }, limits: { tagTtlMs: 0 } };
  const descriptor = await layout.addImage(HELLO);
  await layout.tag('pushed', descriptor);
  await own.push(layout.directory, 'pushed', 'test/own:1');
  let first: StoredImage;
  {
    await using store = await openStore(options);
    first = await prepare(store, 'test/own:1');
    await own.close();
    assert.deepEqual(await prepare(store, 'test/own:1'), first);
  }
  await using store = await openStore(options);
  assert.deepEqual(await prepare(store, 'test/own:1'), first);
  assert.deepEqual(await prepare(store, `test/own@${descriptor.digest}`), {
    ...first,
    reference: `docker.io/test/own@${descriptor.digest}`,
  });
  await assertRefused(
    prepare(store, 'test/own:2'),
    'registry_unavailable',
    /docker\.io \(its mirror\) cannot be reached/u,
  );
});

test('a moved tag is followed when the last answer is old', async () => {
  const first = await push('test/moving:1', HELLO);
  await using cached = await openStore();
  await using asking = await openStore({ limits: { tagTtlMs: 0 } });
  for (const store of [cached, asking])
    assert.equal((await prepare(store, 'test/moving:1')).digest, first.digest);
  const second = await push('test/moving:1', { ...HELLO, config: { User: 'moved' } });
  assert.equal((await prepare(cached, 'test/moving:1')).digest, first.digest);
  assert.equal((await prepare(asking, 'test/moving:1')).digest, second.digest);
  assert.deepEqual(
    asking.list().map(({ digest }) => digest),
    [second.digest],
    'the tag is listed with its present digest',
  );
});

test('the image for linux/amd64 is selected from an index, by tag and by digest', async () => {
  const amd64 = await layout.addImage(HELLO);
  const arm64 = await layout.addImage({ ...HELLO, architecture: 'arm64' });
  const index = await push('test/multi:1', await layout.addIndex([arm64, amd64]));
  await using store = await openStore();
  assert.equal((await prepare(store, 'test/multi:1')).digest, amd64.digest);
  assert.equal((await prepare(store, `test/multi@${index.digest}`)).digest, amd64.digest);
  const foreign = await layout.addIndex([arm64]);
  await push('test/foreign:1', foreign);
  await assertRefused(prepare(store, 'test/foreign:1'), 'invalid_image', /linux\/arm64/u);
  await push('test/foreign:2', arm64);
  await assertRefused(prepare(store, 'test/foreign:2'), 'invalid_image', /linux\/arm64/u);
});

test('simultaneous callers share one preparation, and a caller that leaves ends only its own wait', async () => {
  await push('test/shared:1', { ...HELLO, config: { User: 'shared' } });
  await using store = await openStore();
  const leaving = new AbortController();
  const reference = parseImageReference('test/shared:1');
  const left = store.prepare(reference, {
    signal: leaving.signal,
    onStep: (step) => {
      if (step === 'pull') leaving.abort(new Error('the caller left'));
    },
  });
  const others = Array.from({ length: 20 }, () => store.prepare(reference));
  await assert.rejects(left, /the caller left/u);
  const images = await Promise.all(others);
  assert.equal(new Set(images.map(({ path }) => path)).size, 1);
  assert.equal(new Set(images.map(({ preparedAt }) => preparedAt.getTime())).size, 1);
  assert.deepEqual(store.listPreparing(), []);
});

test('a preparation is finished even when its caller has left', async () => {
  await push('test/alone:1', { ...HELLO, config: { User: 'alone' } });
  await using store = await openStore();
  const leaving = new AbortController();
  const onStep = () => leaving.abort(new Error('left'));
  const reference = parseImageReference('test/alone:1');
  await assert.rejects(store.prepare(reference, { signal: leaving.signal, onStep }), /left/u);
  const again = await prepare(store, 'test/alone:1');
  assert.equal(again.config.user, 'alone');
});

test('an image that a registry does not have or show is 404, and a registry that does not answer is 502', async () => {
  const directory = await mkdtemp(join(root, 'store-'));
  const dead = '127.0.0.1:1';
  await using store = await openStore({ directory, insecureRegistries: [registry.name, dead] });
  await assertRefused(prepare(store, 'test/hello:2'), 'image_not_found', /not in the registry docker\.io/u);
  await assertRefused(prepare(store, 'no/such:1'), 'image_not_found');
  await assertRefused(prepare(store, `test/hello@sha256:${'0'.repeat(64)}`), 'image_not_found');
  await assertRefused(prepare(store, 'coppice/none:1'), 'image_not_found', /no built-in image/u);
  await assertRefused(
    prepare(store, `${dead}/x:1`),
    'registry_unavailable',
    /127\.0\.0\.1:1 cannot be reached/u,
  );
  await assertRefused(prepare(store, `127.0.0.1:2/x:1`), 'invalid_image', /COPPICE_INSECURE_REGISTRIES/u);
  await assertNothingLeft(directory);
});

test('a digest is not shown under the name of a repository that does not have it', async () => {
  await using store = await openStore();
  const { digest } = await prepare(store, 'test/hello:1');
  await assertRefused(prepare(store, `test/other@${digest}`), 'image_not_found');
  const pinned = await prepare(store, `test/hello:anything@${digest}`);
  assert.equal(pinned.reference, `docker.io/test/hello:anything@${digest}`);
  assert.equal(store.list().length, 2, 'a tag next to a digest becomes no name of its own');
  assert.deepEqual(await prepare(store, `test/hello:else@${digest}`), {
    ...pinned,
    reference: `docker.io/test/hello:else@${digest}`,
  });
  assert.equal(store.list().length, 2);
});

test('a stored image serves another repository only after that repository has delivered it', async () => {
  const image = await push('test/owned:1', { layers: [{ entries: [{ path: 'a', content: 'owned' }] }] });
  const manifest = await readFile(layout.blobPath(image.digest), 'utf8');
  const { config, layers } = JSON.parse(manifest) as { config: Descriptor; layers: [Descriptor] };
  const [configBlob, layerBlob] = await Promise.all(
    [config, layers[0]].map(({ digest }) => readFile(layout.blobPath(digest))),
  );
  // A registry that knows the manifest, and so every digest, need not have the image.
  await using knowing = await startServer(serveImage(manifest, [configBlob!]));
  await using lying = await startServer(serveImage(manifest, [configBlob!, Buffer.from('no such layer')]));
  await using having = await startServer(serveImage(manifest, [configBlob!, layerBlob!]));
  const insecureRegistries = [knowing.name, lying.name, having.name];
  await using store = await openStore({ insecureRegistries });
  const stored = await prepare(store, 'test/owned:1');
  for (const { name } of [knowing, lying]) {
    for (const reference of [`${name}/x:1`, `${name}/x@${image.digest}`]) {
      await assertRefused(prepare(store, reference), 'image_not_found');
    }
  }
  const same = await prepare(store, `${having.name}/x:1`);
  assert.deepEqual([same.path, same.preparedAt], [stored.path, stored.preparedAt]);
  const asked = having.requests.length;
  await prepare(store, `${having.name}/x@${image.digest}`);
  assert.equal(having.requests.length, asked, 'an image shown by its tag is known by its digest');
});

test('a caller that joins a preparation does not fail when the caller that started it loses its access', async () => {
  const image = await layout.addImage({ layers: [{ entries: [{ path: 'a', content: 'joined' }] }] });
  const manifest = await readFile(layout.blobPath(image.digest), 'utf8');
  const { config, layers } = JSON.parse(manifest) as { config: Descriptor; layers: Descriptor[] };
  const blobs = await Promise.all([config, ...layers].map(({ digest }) => readFile(layout.blobPath(digest))));
  const serve = serveImage(manifest, blobs);
  const joined = Promise.withResolvers<void>();
  await using server = await startServer((request, response) => {
    const user = Buffer.from(request.headers.authorization?.slice(6) ?? '', 'base64').toString('utf8');
    if (user === '') response.writeHead(401, { 'www-authenticate': 'Basic realm="x"' }).end();
    else if (user !== 'leaving:x' || request.url?.includes('/blobs/') !== true) serve(request, response);
    else void joined.promise.then(() => response.writeHead(403).end());
  });
  await using store = await openStore({ insecureRegistries: [server.name] });
  const started = Promise.withResolvers<void>();
  const prepareAs = (username: string, pull: () => void) =>
    store.prepare(parseImageReference(`${server.name}/x:1`), {
      access: { credentials: { username, password: 'x' } },
      onStep: (step) => (step === 'pull' ? pull() : undefined),
    });
  const leaving = assertRefused(
    prepareAs('leaving', started.resolve),
    'image_not_found',
    /do not allow pulling/u,
  );
  await started.promise;
  assert.equal((await prepareAs('staying', joined.resolve)).digest, image.digest);
  await leaving;
});

test('a tag is checked without fetching its manifest as long as its digest stays', async () => {
  const image = await layout.addImage(HELLO);
  const manifest = await readFile(layout.blobPath(image.digest), 'utf8');
  const blobs = JSON.parse(manifest) as { config: Descriptor; layers: Descriptor[] };
  const data = await Promise.all(
    [blobs.config, ...blobs.layers].map(({ digest }) => readFile(layout.blobPath(digest))),
  );
  await using server = await startServer(serveImage(manifest, data));
  await using store = await openStore({ insecureRegistries: [server.name], limits: { tagTtlMs: 0 } });
  await prepare(store, `${server.name}/x:1`);
  server.requests.length = 0;
  await prepare(store, `${server.name}/x:1`);
  assert.deepEqual(
    server.requests.map(({ line }) => line),
    ['HEAD /v2/x/manifests/1'],
  );
});

test('a configured plain HTTP registry is used under its own name', async () => {
  await using store = await openStore({ mirrors: {} });
  const image = await prepare(store, `${registry.name}/test/hello:1`);
  assert.equal(image.reference, `${registry.name}/test/hello:1@${image.digest}`);
});

test('a built-in image comes from its layout, and a rebuilt layout is seen', async () => {
  const own = await OciLayout.create(await mkdtemp(join(root, 'builtin-')));
  await own.tag('1', await own.addImage(HELLO));
  const builtin = [{ reference: 'coppice/base:1', layoutPath: own.directory }];
  await using store = await openStore({ builtin, mirrors: {}, insecureRegistries: [] });
  const first = await prepare(store, 'coppice/base:1');
  assert.equal(first.reference, `coppice/base:1@${first.digest}`);
  assert.deepEqual(await prepare(store, `coppice/base:1@${first.digest}`), first);
  await own.tag('1', await own.addImage({ ...HELLO, config: { User: 'anew' } }));
  assert.equal((await prepare(store, 'coppice/base:1')).config.user, 'anew');
});

test('a running store prepares an imported image, and requests no other name under local/ from any registry', async () => {
  const localDirectory = join(root, 'imported');
  await using store = await openStore({ localDirectory, mirrors: {}, insecureRegistries: [] });
  await assertRefused(
    prepare(store, 'local/app:1'),
    'image_not_found',
    /coppice admin image import .* --as local\/app:1/u,
  );
  const own = await OciLayout.create(join(root, 'to-import'));
  await own.tag('x', await own.addImage(HELLO));
  const images = new LocalImages(localDirectory);
  const limits = DEFAULT_IMAGE_LIMITS;
  const { digest } = await importLayout({
    images,
    path: own.directory,
    as: 'local/app:1',
    name: undefined,
    limits,
  });
  const stored = await prepare(store, 'local/app:1');
  assert.deepEqual([stored.reference, stored.config.user], [`local/app:1@${digest}`, '1000']);
  assert.match(listSquashfs(stored), /hello/u);
  images.remove('local/app:1');
  await assertRefused(prepare(store, 'local/app:1'), 'image_not_found', /no imported image/u);
});

test('damaged, hostile and oversized images are refused and leave nothing', async () => {
  const directory = await mkdtemp(join(root, 'store-'));
  const limits = { maxEntries: 10, maxContentBytes: 1 << 20, maxLayers: 3 };
  await using store = await openStore({ directory, limits });
  const notTar = join(root, 'not.tar');
  await writeFile(notTar, Buffer.alloc(2048, '7'));
  const one = (entries: { path: string; content?: string | Buffer; type?: 'link'; target?: string }[]) => ({
    layers: [{ entries }],
  });
  const cases: [string, ImageSpec, RegExp][] = [
    ['escape', one([{ path: '../etc/passwd' }]), /leads out of the image/u],
    ['link', one([{ path: 'a', type: 'link', target: '/etc/shadow' }]), /not there/u],
    [
      'entries',
      one(Array.from({ length: 11 }, (_, index) => ({ path: `f${index}` }))),
      /more than 10 entries/u,
    ],
    ['large', one([{ path: 'a', content: Buffer.alloc(3 << 20) }]), /more than 1048576 bytes/u],
    [
      'layers',
      { layers: Array.from({ length: 4 }, (_, index) => ({ entries: [{ path: `${index}` }] })) },
      /4 layers/u,
    ],
    ['tar', { layers: [{ tarPath: notTar }] }, /layer 1 of 1: it is no tar/u],
  ];
  for (const [name, spec, pattern] of cases) {
    await push(`test/bad-${name}:1`, spec);
    await assertRefused(prepare(store, `test/bad-${name}:1`), 'invalid_image', pattern);
  }
  const chart = await layout.addBlob('application/vnd.oci.image.manifest.v1+json', {
    schemaVersion: 2,
    config: await layout.addBlob('application/vnd.cncf.helm.config.v1+json', {}),
    layers: [],
  });
  await push('test/chart:1', chart);
  await assertRefused(prepare(store, 'test/chart:1'), 'invalid_image', /no container image/u);
  await assertNothingLeft(directory);
});

test('a blob that was changed in the registry is refused', async () => {
  const directory = await mkdtemp(join(root, 'store-'));
  const content = { path: 'a', content: 'tampered with' };
  const image = await push('test/tampered:1', { layers: [{ entries: [content], compression: 'none' }] });
  const manifest = JSON.parse(await readFile(layout.blobPath(image.digest), 'utf8')) as {
    layers: Descriptor[];
  };
  const hex = manifest.layers[0]!.digest.slice('sha256:'.length);
  const path = join(registry.dataDirectory, 'docker/registry/v2/blobs/sha256', hex.slice(0, 2), hex, 'data');
  await writeFile(path, (await readFile(path, 'latin1')).replace('tampered with', 'TAMPERED WITH'), 'latin1');
  await using store = await openStore({ directory });
  await assertRefused(
    prepare(store, 'test/tampered:1'),
    'registry_unavailable',
    /does not match its digest/u,
  );
  await assertNothingLeft(directory);
});

test('an image whose config does not describe its layers is refused', async () => {
  const [a, b] = await Promise.all(
    ['a', 'b'].map(async (path) => {
      const image = await layout.addImage({ layers: [{ entries: [{ path }] }] });
      return JSON.parse(await readFile(layout.blobPath(image.digest), 'utf8')) as {
        config: Descriptor;
        layers: Descriptor[];
      };
    }),
  );
  const mixed = await layout.addBlob('application/vnd.oci.image.manifest.v1+json', {
    ...a,
    layers: b?.layers,
  });
  await push('test/mixed:1', mixed);
  await using store = await openStore();
  await assertRefused(
    prepare(store, 'test/mixed:1'),
    'invalid_image',
    /its unpacked content does not match its config/u,
  );
});

test('a full disk is refused before the pull', async () => {
  await using store = await openStore({ limits: { minFreeBytes: Number.MAX_SAFE_INTEGER } });
  await assertRefused(prepare(store, 'test/hello:1'), 'capacity', /bytes free/u);
});

test('too many different images at once are refused', async () => {
  await push('test/hello:other', { ...HELLO, config: { User: 'other' } });
  await using store = await openStore({
    limits: { maxConcurrentPreparations: 1, maxWaitingPreparations: 0 },
  });
  const results = await Promise.allSettled([
    prepare(store, 'test/hello:1'),
    prepare(store, 'test/hello:other'),
  ]);
  assert.deepEqual(results.map(({ status }) => status).sort(), ['fulfilled', 'rejected']);
});

test('leftovers of a killed process and unreadable images are removed at the start', async () => {
  const directory = await mkdtemp(join(root, 'store-'));
  let image: StoredImage;
  {
    await using store = await openStore({ directory });
    image = await prepare(store, 'test/hello:1');
  }
  await mkdir(join(directory, 'staging', 'image-killed', 'layers'), { recursive: true });
  await writeFile(join(directory, 'staging', 'image-killed', 'layers', 'half'), 'half');
  await mkdir(join(directory, 'images', `sha256-${'0'.repeat(64)}`));
  await using store = await openStore({ directory });
  assert.deepEqual(await readdir(join(directory, 'staging')), []);
  assert.deepEqual(store.list(), [image]);
  assert.equal((await readdir(join(directory, 'images'))).length, 1);
});

test('a truncated image file is prepared again', async () => {
  const directory = await mkdtemp(join(root, 'store-'));
  let image: StoredImage;
  {
    await using store = await openStore({ directory });
    image = await prepare(store, 'test/hello:1');
  }
  await rm(image.path);
  await writeFile(image.path, 'cut');
  await using store = await openStore({ directory });
  assert.deepEqual(store.list(), []);
  assert.equal((await prepare(store, 'test/hello:1')).sizeBytes, image.sizeBytes);
});

test('closing the store ends preparations and leaves nothing', async () => {
  const directory = await mkdtemp(join(root, 'store-'));
  await push('test/closing:1', { ...HELLO, config: { User: 'closing' } });
  const store = await openStore({ directory });
  const pulling = Promise.withResolvers<void>();
  const onStep = (step: PrepareStep) => {
    if (step === 'pull') pulling.resolve();
  };
  const refused = assertRefused(
    store.prepare(parseImageReference('test/closing:1'), { onStep }),
    'unavailable',
  );
  await pulling.promise;
  await store.close();
  await refused;
  await assertRefused(prepare(store, 'test/hello:1'), 'unavailable', /shutting down/u);
  await assertNothingLeft(directory);
});
