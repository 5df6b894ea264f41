import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError, type ErrorCode } from '@coppice/contract';
import fc from 'fast-check';
import { parseImageConfig } from './image-config.ts';
import { DEFAULT_IMAGE_LIMITS, maxUnpackedBytes } from './image-limits.ts';
import { checkManifest, digestOf, parseManifest, selectPlatform } from './manifest.ts';
import { buildRegistriesConf } from './registries-conf.ts';
import { translateRegistryFailure } from './registry-failure.ts';
import { RegistryGuard } from './registry-guard.ts';
import { ProcessError } from './run-process.ts';

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

test('a working directory that is not absolute starts at the root', () => {
  const workdirs = ['srv/app', '../srv', '/a/../b/', '.'].map(
    (WorkingDir) => parseImageConfig('x', config({}, { WorkingDir })).config.workdir,
  );
  assert.deepEqual(workdirs, ['/srv/app', '/srv', '/b', '/']);
});

test('a config of another platform or none at all is refused', () => {
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

test('manifests are told from indexes, and what is both from either', () => {
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

test('an index gives the image of our platform', () => {
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

test('what is no container image or too large is refused before it is pulled', () => {
  const manifest = { config: descriptor, layers: [{ ...descriptor, size: 100 }] };
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

test('what layers may unpack to grows with what was downloaded, up to the limit of an image', () => {
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

test('mirrors replace their registry, insecure registries stay themselves', () => {
  const text = buildRegistriesConf({
    mirrors: { 'docker.io': 'http://127.0.0.1:5000/hub/', 'ghcr.io': 'https://mirror.example' },
    insecureRegistries: ['localhost:5001', 'docker.io'],
  });
  assert.match(text, /prefix = "docker.io"\nlocation = "127.0.0.1:5000\/hub"\ninsecure = true/u);
  assert.match(text, /prefix = "ghcr.io"\nlocation = "mirror.example"\ninsecure = false/u);
  assert.match(text, /prefix = "localhost:5001"\nlocation = "localhost:5001"\ninsecure = true/u);
  assert.equal(text.match(/prefix = /gu)?.length, 3);
});

test('settings that would write something else into the configuration are refused', () => {
  for (const mirrors of [
    { 'docker.io': 'mirror.example' },
    { 'docker.io': 'ftp://x' },
    { 'a"\nb': 'http://x' },
    { 'docker.io': '' },
  ]) {
    assert.throws(
      () => buildRegistriesConf({ mirrors, insecureRegistries: [] }),
      refusal('invalid_request', /mirrors/u),
    );
  }
  assert.throws(
    () => buildRegistriesConf({ mirrors: {}, insecureRegistries: ['http://x'] }),
    refusal('invalid_request', /insecureRegistries/u),
  );
});

test("skopeo's words become codes", () => {
  const translate = (stderr: string, image = 'docker.io/library/x:1') =>
    translateRegistryFailure({
      image,
      registry: 'docker.io',
      step: 'resolve',
      error: new ProcessError('skopeo: exit code 1', { stderr }),
    });
  const head = (image: string) => `level=fatal msg="Error parsing image name \\"docker://${image}\\": `;
  for (const [words, code] of [
    ['reading manifest 2 in 127.0.0.1/x: manifest unknown: manifest unknown"', 'image_not_found'],
    ['reading manifest 2 in r/x: name unknown: repository name not known to registry"', 'image_not_found'],
    [
      'reading manifest 1 in docker.io/no/such: errors:\\ndenied: requested access to the resource is denied\\nunauthorized: authentication required"',
      'image_not_found',
    ],
    [
      'unable to retrieve auth token: invalid username/password: unauthorized: authentication required"',
      'image_not_found',
    ],
    ['reading manifest 1 in ghcr.io/no/such: denied"', 'image_not_found'],
    [
      'pinging container registry r: Get \\"http://r/v2/\\": dial tcp 127.0.0.1:1: connect: connection refused"',
      'registry_unavailable',
    ],
    [
      'pinging container registry r: Get \\"https://r/v2/\\": dial tcp: lookup r on 10.0.0.1:53: no such host"',
      'registry_unavailable',
    ],
    [
      'pinging container registry r: received unexpected HTTP status: 503 Service Unavailable"',
      'registry_unavailable',
    ],
    [
      'reading manifest 1 in r/x: toomanyrequests: You have reached your pull rate limit"',
      'registry_unavailable',
    ],
    ['something nobody has seen yet"', 'registry_unavailable'],
    ['writing blob: write /x/y: no space left on device"', 'capacity'],
    ['invalid reference format"', 'invalid_image'],
  ] as const) {
    assert.equal(translate(head('docker.io/library/x:1') + words).code, code, words);
  }
  // A name is not an answer.
  const names = [
    'docker.io/manifest/unauthorized:denied',
    'docker.io/denied/x:unauthorized',
    'docker.io/429/404:403',
  ];
  for (const name of names) {
    const words =
      'pinging container registry docker.io: Get \\"https://docker.io/v2/\\": connect: connection refused"';
    assert.equal(translate(head(name) + words, name).code, 'registry_unavailable', name);
  }
});

test('only public registries and configured ones are asked', async () => {
  const addresses: Record<string, string[]> = {
    'public.example': ['93.184.216.34', '2606:2800:220:1::1'],
    'rebound.example': ['93.184.216.34', '10.0.0.5'],
    'metadata.example': ['169.254.169.254'],
  };
  const guard = new RegistryGuard({
    configured: ['127.0.0.1:5000', 'intern.example'],
    resolve: async (host) => addresses[host] ?? Promise.reject(new Error('no such host')),
  });
  for (const registry of [
    '127.0.0.1:5000',
    'intern.example',
    'public.example',
    'public.example:443',
    '8.8.8.8',
  ]) {
    await guard.check(registry);
  }
  const refused = [
    '127.0.0.1:5001',
    'localhost',
    'rebound.example:5000',
    'metadata.example',
    '10.1.2.3',
    '[::1]:5000',
    '[fd00::1]',
    '[::ffff:127.0.0.1]:80',
    '[::ffff:7f00:1]',
    '0.0.0.0:80',
  ];
  addresses['localhost'] = ['127.0.0.1'];
  for (const registry of refused) {
    await assert.rejects(
      guard.check(registry),
      refusal('registry_unavailable', /private address/u),
      registry,
    );
  }
  await assert.rejects(guard.check('gone.example'), refusal('registry_unavailable', /cannot be resolved/u));
  const proxied = new RegistryGuard({
    configured: [],
    isProxied: true,
    resolve: async (host) => addresses[host] ?? Promise.reject(new Error('no such host')),
  });
  await assert.rejects(proxied.check('localhost:80'), refusal('registry_unavailable', /private address/u));
  await proxied.check('gone.example');
  await assert.rejects(proxied.check('192.168.0.1'), refusal('registry_unavailable', /private address/u));
});
