import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { ConfigError, loadConfig, readProcessSettings, type Config } from './config.ts';
import { Settings } from './settings.ts';

const MANIFEST = Object.fromEntries([
  ['version', 1],
  ['base_image', { layout_path: '/assets/base', reference: 'coppice/base:1' }],
  ...[
    'kernel',
    'initramfs',
    'jail',
    'capture',
    'hostctl',
    'blocks',
    'docs',
    'dashboard',
    'qemu',
    'tar2sqfs',
    'nft',
    'ip',
    'mke2fs',
    'postgres_bin',
  ].map((name) => [name, { path: `/assets/${name}` }]),
]);

function load(environment: Record<string, string>, manifest: unknown = MANIFEST): Config {
  const directory = mkdtempSync(join(tmpdir(), 'config-'));
  try {
    writeFileSync(join(directory, 'manifest.json'), JSON.stringify(manifest));
    return loadConfig({ COPPICE_ASSETS_DIR: directory, ...environment });
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test('a token for metrics is long, visible, and no API key', () => {
  const token = 'm'.repeat(16);
  assert.equal(load({}).control.metricsToken, undefined);
  assert.equal(load({ COPPICE_METRICS_TOKEN: token }).control.metricsToken, token);
  for (const wrong of ['', token.slice(1), 'm'.repeat(257), `${token} x`, `${token}ü`])
    assert.throws(
      () => load({ COPPICE_METRICS_TOKEN: wrong }),
      /^ConfigError: COPPICE_METRICS_TOKEN: must be 16/,
    );
  const key = `cop_live_us_${'k'.repeat(40)}`;
  assert.throws(() => load({ COPPICE_METRICS_TOKEN: key }), /COPPICE_METRICS_TOKEN: must not be an API key/);
});

test('without any setting the service listens on loopback only', () => {
  assert.deepEqual(load({}).control.listen, { host: '127.0.0.1', port: 8080 });
});

test('an invalid setting is refused, and the error names it', () => {
  const refused: [string, string][] = [
    ['COPPICE_LISTEN', 'everywhere'],
    ['COPPICE_INTERNAL_LISTEN', 'everywhere'],
    ['COPPICE_INTERNAL_ADDRESS', '10.0.0.1'],
    ['COPPICE_LISTEN', '127.0.0.1:99999'],
    ['COPPICE_REGION', 'US!'],
    ['COPPICE_REGIONS', 'https://eu.api.example.com'],
    ['COPPICE_REGIONS', 'eu=eu.api.example.com'],
    ['COPPICE_REGIONS', 'EU=https://eu.api.example.com'],
    ['COPPICE_REGIONS', 'eu=http://eu.api.example.com'],
    ['COPPICE_REGIONS', 'eu=https://user@eu.api.example.com'],
    ['COPPICE_REGIONS', 'eu=https://eu.api.example.com?'],
    ['COPPICE_REGIONS', 'eu=https://a.example.com,eu=https://b.example.com'],
    ['COPPICE_REGISTRY_MIRRORS', 'docker.io'],
    ['COPPICE_LOG_LEVEL', 'loud'],
    ['COPPICE_MEM_OVERCOMMIT', '0'],
    ['COPPICE_CPU_OVERCOMMIT', 'many'],
    ['COPPICE_DISK_RESERVE_MIB', '1.5'],
    ['COPPICE_SNAPSHOT_QUOTA_GIB', '-1'],
    ['COPPICE_UID_BASE', '0'],
    ['COPPICE_CPU', 'x86-64-v1'],
    ['COPPICE_NETWORK', 'yes'],
    ['COPPICE_SIGN_UP', 'closed'],
    ['COPPICE_OBJECT_STORE', 's3://bucket'],
    ['COPPICE_BOOTSTRAP_INVITATION', 'inv_short'],
    ['COPPICE_GUEST_CIDR', 'ten'],
    ['COPPICE_RUN_DIR', `/${'x'.repeat(80)}`],
  ];
  for (const [name, value] of refused) {
    assert.throws(
      () => load({ [name]: value }),
      (error) => error instanceof ConfigError && error.message.includes(name),
      name,
    );
  }
});

test('registry mirrors and lists are parsed from one line', () => {
  const { runner } = load({
    COPPICE_REGISTRY_MIRRORS: 'docker.io=http://127.0.0.1:5000, ghcr.io=https://mirror.example',
    COPPICE_INSECURE_REGISTRIES: 'a:1,b:2',
  });
  assert.deepEqual(runner.registryMirrors, {
    'docker.io': 'http://127.0.0.1:5000',
    'ghcr.io': 'https://mirror.example',
  });
  assert.deepEqual(runner.insecureRegistries, ['a:1', 'b:2']);
});

test('guests get a network if possible by default; the setting can switch it off or require it', () => {
  assert.equal(load({}).runner.network, 'auto');
  for (const mode of ['on', 'off']) assert.equal(load({ COPPICE_NETWORK: mode }).runner.network, mode);
});

test('the manifest of a machine that was set up without nft and ip is valid', () => {
  const { nft: _nft, ip: _ip, ...others } = MANIFEST;
  assert.equal(load({}, others).runner.tools.nft, 'nft');
});

test('a manifest without documentation and dashboard is valid, and one with them names their directories', () => {
  const { docs: _docs, dashboard: _dashboard, ...others } = MANIFEST;
  const without = load({}, others).control;
  assert.deepEqual([without.documentationDir, without.dashboardDir], [undefined, undefined]);
  const { control } = load({});
  assert.deepEqual([control.documentationDir, control.dashboardDir], ['/assets/docs', '/assets/dashboard']);
});

test('for a manifest that is missing or of another version the error says to run set-up', () => {
  assert.throws(() => loadConfig({ COPPICE_ASSETS_DIR: '/nonexistent' }), /npm run setup/u);
  assert.throws(() => load({}, { version: 2 }), /npm run setup/u);
});

test('the file that COPPICE_CONFIG names is read, and the environment overrides it', () => {
  const directory = mkdtempSync(join(tmpdir(), 'config-'));
  const path = join(directory, 'coppice.env');
  writeFileSync(path, 'COPPICE_REGION=eu\nCOPPICE_LOG_LEVEL=debug\n');
  try {
    const config = load({ COPPICE_CONFIG: path, COPPICE_LOG_LEVEL: 'warn' });
    assert.equal(config.control.region, 'eu');
    assert.equal(config.logLevel, 'warn');
  } finally {
    rmSync(directory, { recursive: true });
  }
  assert.throws(() => load({ COPPICE_CONFIG: '/nonexistent.env' }), /does not exist/u);
});

test('credentials of the object store may be in the file; the environment overrides them', () => {
  const directory = mkdtempSync(join(tmpdir(), 'config-'));
  const path = join(directory, 'coppice.env');
  writeFileSync(
    path,
    "COPPICE_OBJECT_STORE='s3://bucket?region=eu'\nAWS_ACCESS_KEY_ID=a\nAWS_SECRET_ACCESS_KEY=b\nOTHER=c\n",
  );
  try {
    const config = load({ COPPICE_CONFIG: path, AWS_ACCESS_KEY_ID: 'mine' });
    assert.equal(config.control.objectStore?.kind, 's3');
    assert.deepEqual(config.storeVariables, { AWS_SECRET_ACCESS_KEY: 'b' });
    const { storeVariables: _variables, ...others } = config;
    assert.ok(!JSON.stringify(others).includes('AWS_'));
  } finally {
    rmSync(directory, { recursive: true });
  }
  assert.equal(load({}).control.objectStore?.kind, 'directory');
});

test('a process without directories of its own reads the factor of all deadlines', () => {
  const settings = readProcessSettings({ COPPICE_DEADLINE_FACTOR: '20' });
  assert.equal(settings.deadlineFactor, 20);
});

test('two data directories have two slugs for names in the kernel', () => {
  assert.notEqual(load({ COPPICE_DATA_DIR: '/a' }).runner.slug, load({ COPPICE_DATA_DIR: '/b' }).runner.slug);
});

test('every setting is in the reference documentation', () => {
  const reference = readFileSync(
    new URL('../../../../docs/reference/configuration.md', import.meta.url),
    'utf8',
  );
  for (const name of Object.keys(Settings.shape))
    assert.ok(reference.includes(`\`${name}\``), `${name} is not documented`);
});

test('the addresses of other regions are parsed from one line', () => {
  const { regionAddresses } = load({
    COPPICE_REGIONS:
      'eu=https://eu.api.example.com/, us=https://us.api.example.com/cop, lab=http://127.0.0.1:8080',
  }).control;
  assert.deepEqual(Object.fromEntries(regionAddresses ?? []), {
    eu: 'https://eu.api.example.com',
    us: 'https://us.api.example.com/cop',
    lab: 'http://127.0.0.1:8080',
  });
  assert.equal(load({}).control.regionAddresses?.size, 0);
});

test('an invalid bootstrap key is refused before anything starts', () => {
  const secret = 'k'.repeat(40);
  assert.throws(
    () => load({ COPPICE_BOOTSTRAP_KEY: 'secret' }),
    /^ConfigError: COPPICE_BOOTSTRAP_KEY: is malformed/,
  );
  assert.throws(
    () => load({ COPPICE_BOOTSTRAP_KEY: `cop_live_eu_${secret}` }),
    /is of region "eu", but COPPICE_REGION is "us"/,
  );
});

test('plain HTTP is served on loopback only, unless the operator allows other addresses', () => {
  for (const listen of ['127.0.0.1:1', '127.9.9.9:1', '[::1]:1', 'localhost:1'])
    assert.equal(load({ COPPICE_LISTEN: listen }).tls, undefined, listen);
  for (const listen of ['0.0.0.0:80', '[::]:80', '192.168.1.1:80', '[::ffff:192.168.1.1]:80']) {
    assert.throws(
      () => load({ COPPICE_LISTEN: listen }),
      /COPPICE_LISTEN: .* not a loopback address.*COPPICE_TLS_CERT and COPPICE_TLS_KEY.*COPPICE_ALLOW_PLAIN_HTTP=true/u,
      listen,
    );
    assert.equal(load({ COPPICE_LISTEN: listen, COPPICE_ALLOW_PLAIN_HTTP: 'true' }).tls, undefined);
    const tls = { COPPICE_TLS_CERT: '/a.pem', COPPICE_TLS_KEY: '/a.key' };
    assert.deepEqual(load({ COPPICE_LISTEN: listen, ...tls }).tls, { certPath: '/a.pem', keyPath: '/a.key' });
  }
});

test('contradictory or invalid settings of TLS and proxies are refused, and the error names them', () => {
  const refused: [environment: Record<string, string>, message: RegExp][] = [
    [{ COPPICE_TLS_CERT: '/a.pem' }, /^ConfigError: COPPICE_TLS_KEY: is missing; COPPICE_TLS_CERT is set/u],
    [{ COPPICE_TLS_KEY: '/a.key' }, /^ConfigError: COPPICE_TLS_CERT: is missing; COPPICE_TLS_KEY is set/u],
    [{ COPPICE_TLS_CERT: 'a.pem', COPPICE_TLS_KEY: '/a.key' }, /COPPICE_TLS_CERT: must be an absolute path/u],
    [{ COPPICE_HSTS_SECONDS: '60' }, /COPPICE_HSTS_SECONDS: .*only over TLS/u],
    [{ COPPICE_HSTS_SECONDS: 'long' }, /COPPICE_HSTS_SECONDS: must be a whole number/u],
    [{ COPPICE_HSTS_SECONDS: '-1' }, /COPPICE_HSTS_SECONDS: must be a whole number/u],
    [{ COPPICE_ALLOW_PLAIN_HTTP: 'yes' }, /COPPICE_ALLOW_PLAIN_HTTP: must be true or false/u],
    [
      { COPPICE_TRUSTED_PROXIES: '10.0.0.0/8, proxy' },
      /COPPICE_TRUSTED_PROXIES: "proxy" is not an IP address/u,
    ],
  ];
  for (const [environment, message] of refused) assert.throws(() => load(environment), message);
});

test('by default pages of any origin may use the API; a setting limits them to a list, or to none', () => {
  assert.deepEqual(load({}).control.corsOrigins, ['*']);
  const listed = 'https://app.example.com, http://localhost:3000';
  assert.deepEqual(load({ COPPICE_CORS_ORIGINS: listed }).control.corsOrigins, [
    'https://app.example.com',
    'http://localhost:3000',
  ]);
  assert.deepEqual(load({ COPPICE_CORS_ORIGINS: '' }).control.corsOrigins, []);
  for (const wrong of [
    'app.example.com',
    'https://app.example.com/',
    'https://APP.example.com',
    'null',
    'ftp://a',
  ])
    assert.throws(
      () => load({ COPPICE_CORS_ORIGINS: wrong }),
      /COPPICE_CORS_ORIGINS: ".*" is not an origin/u,
      wrong,
    );
});

test('by default no proxy is trusted; a setting lists addresses and ranges', () => {
  assert.deepEqual(load({}).control.trustedProxies, []);
  assert.deepEqual(load({ COPPICE_TRUSTED_PROXIES: '127.0.0.1, 2001:db8::/32,' }).control.trustedProxies, [
    '127.0.0.1',
    '2001:db8::/32',
  ]);
});
