import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError, type ErrorCode } from '@coppice/contract';
import fc from 'fast-check';
import { parseImageConfig } from './source/image-config.ts';
import { DEFAULT_IMAGE_LIMITS, maxUnpackedBytes } from './layers/image-limits.ts';
import { checkManifest, digestOf, parseManifest, selectPlatform } from './source/manifest.ts';

const DIGEST = `sha256:${'a'.repeat(64)}`;
const OTHER = `sha256:${'b'.repeat(64)}`;

function refusal(code: ErrorCode, pattern: RegExp) {
  return (error: unknown) => {
    assert(error instanceof AppError, String(error));
    assert.equal(error.code, code);
    assert.match(error.message, pattern);
    return true;
  };
}

function config(change: Record<string, unknown> = {}, settings: Record<string, unknown> = {}): Buffer {
  const rootfs = { type: 'layers', diff_ids: [DIGEST] };
  return Buffer.from(
    JSON.stringify({ os: 'linux', architecture: 'amd64', rootfs, config: settings, ...change }),
  );
}

test('a config gives environment, user, directory and layers', () => {
  const settings = {
    Env: ['PATH=/bin', 'A=1', 'A=2=3', 'UNSET', '__proto__=x', 'EMPTY='],
    User: 'node:node',
    WorkingDir: '/srv',
  };
  const parsed = parseImageConfig('x', config({}, settings));
  assert.deepEqual(Object.entries(parsed.config.env), [
    ['PATH', '/bin'],
    ['A', '2=3'],
    ['__proto__', 'x'],
    ['EMPTY', ''],
  ]);
  assert.deepEqual(
    [parsed.config.user, parsed.config.workdir, parsed.diffIds],
    ['node:node', '/srv', [DIGEST]],
  );
  const bare = parseImageConfig('x', config({ config: null }));
  assert.deepEqual(bare.config, { env: {}, user: '', workdir: '' });
});

test('a relative working directory starts at the root', () => {
  const workdirs = ['srv/app', '../srv', '/a/../b/', '.'].map(
    (WorkingDir) => parseImageConfig('x', config({}, { WorkingDir })).config.workdir,
  );
  assert.deepEqual(workdirs, ['/srv/app', '/srv', '/b', '/']);
});

test('a config of another platform and a malformed config are refused', () => {
  assert.throws(
    () => parseImageConfig('x', config({ architecture: 'arm64' })),
    refusal('invalid_image', /linux\/arm64/u),
  );
  assert.throws(
    () => parseImageConfig('x', config({ os: 'windows' })),
    refusal('invalid_image', /windows\/amd64/u),
  );
  assert.throws(() => parseImageConfig('x', Buffer.from('{')), refusal('invalid_image', /not JSON/u));
  assert.throws(
    () => parseImageConfig('x', config({ rootfs: undefined })),
    refusal('invalid_image', /at rootfs/u),
  );
  const bad = { type: 'layers', diff_ids: ['sha256:../../etc'] };
  assert.throws(() => parseImageConfig('x', config({ rootfs: bad })), refusal('invalid_image', /diff_ids/u));
  assert.throws(() => parseImageConfig('x', config({}, { Env: ['A=\0'] })), refusal('invalid_image', /NUL/u));
  assert.throws(
    () => parseImageConfig('x', config({}, { Env: [`A=${'x'.repeat(200_000)}`] })),
    refusal('invalid_image', /more than/u),
  );
});

test('any bytes as a config or manifest are read or refused', () => {
  const documents = fc.oneof(
    fc.string(),
    fc.json(),
    fc.json().map((text) => `{"manifests":${text}}`),
  );
  fc.assert(
    fc.property(documents, (text) => {
      for (const parse of [parseImageConfig, parseManifest]) {
        try {
          parse('x', Buffer.from(text));
        } catch (error) {
          assert(error instanceof AppError && error.code === 'invalid_image', String(error));
        }
      }
    }),
  );
});

const descriptor = { mediaType: 'application/vnd.oci.image.config.v1+json', digest: DIGEST, size: 10 };

function parse(document: unknown) {
  return parseManifest('x', Buffer.from(JSON.stringify(document)));
}

test('manifests and indexes are recognized, and a document that is both is refused', () => {
  assert.equal(parse({ config: descriptor, layers: [] }).kind, 'image');
  assert.equal(parse({ manifests: [] }).kind, 'index');
  assert.throws(
    () => parse({ manifests: [], layers: [], config: descriptor }),
    refusal('invalid_image', /both/u),
  );
  assert.throws(() => parse({ schemaVersion: 1, fsLayers: [] }), refusal('invalid_image', /schema 1/u));
  assert.equal(
    digestOf(Buffer.from('')),
    'sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
  );
});

test('the image of this platform is selected from an index', () => {
  const of = (architecture: string, digest: string) => ({
    ...descriptor,
    digest,
    platform: { os: 'linux', architecture },
  });
  assert.equal(selectPlatform('x', { manifests: [of('arm64', OTHER), of('amd64', DIGEST)] }), DIGEST);
  assert.equal(selectPlatform('x', { manifests: [descriptor] }), DIGEST);
  assert.throws(
    () => selectPlatform('x', { manifests: [of('arm64', DIGEST), of('s390x', OTHER)] }),
    refusal('invalid_image', /linux\/arm64, linux\/s390x/u),
  );
  assert.throws(() => selectPlatform('x', { manifests: [] }), refusal('invalid_image', /no platform/u));
});

const layer = { mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip', digest: DIGEST, size: 100 };

test('an artifact that is no container image, or is too large, is refused before it is pulled', () => {
  const manifest = { config: descriptor, layers: [layer] };
  checkManifest('x', manifest, DEFAULT_IMAGE_LIMITS);
  const chart = {
    ...manifest,
    config: { ...descriptor, mediaType: 'application/vnd.cncf.helm.config.v1+json' },
  };
  assert.throws(
    () => checkManifest('x', chart, DEFAULT_IMAGE_LIMITS),
    refusal('invalid_image', /no container image/u),
  );
  for (const [limit, pattern] of [
    ['maxLayers', /1 layers/u],
    ['maxConfigBytes', /bytes of config/u],
    ['maxCompressedBytes', /bytes of layers/u],
  ] as const) {
    const limits = { ...DEFAULT_IMAGE_LIMITS, [limit]: 0 };
    assert.throws(() => checkManifest('x', manifest, limits), refusal('invalid_image', pattern));
  }
});

test('the allowed unpacked size grows with the downloaded size, up to the limit of an image', () => {
  const limits = {
    ...DEFAULT_IMAGE_LIMITS,
    maxContentBytes: 10_000,
    freeExpansionBytes: 1000,
    maxExpansion: 20,
  };
  assert.deepEqual(
    [0, 100, 10_000].map((bytes) => maxUnpackedBytes(bytes, limits)),
    [1000, 3000, 10_000],
  );
});

test('layers that their registry does not hold or that cannot be unpacked are refused', () => {
  const of = (mediaType: string) => ({ config: descriptor, layers: [{ ...layer, mediaType }] });
  const foreign = of('application/vnd.docker.image.rootfs.foreign.diff.tar.gzip');
  assert.throws(
    () => checkManifest('x', foreign, DEFAULT_IMAGE_LIMITS),
    refusal('invalid_image', /foreign/u),
  );
  const encrypted = of('application/vnd.oci.image.layer.v1.tar+gzip+encrypted');
  assert.throws(
    () => checkManifest('x', encrypted, DEFAULT_IMAGE_LIMITS),
    refusal('invalid_image', /unsupported kind .*encrypted/u),
  );
});
