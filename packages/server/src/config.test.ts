import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { ConfigError, loadConfig, Settings, type Config } from './config.ts';

const MANIFEST = Object.fromEntries([
  ['version', 1],
  ['base_image', { layout_path: '/assets/base', reference: 'coppice/base:1' }],
  ...[
    'kernel',
    'initramfs',
    'qemu',
    'qemu_img',
    'tar2sqfs',
    'skopeo',
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

test('with no setting at all the service listens on loopback only', () => {
  assert.deepEqual(load({}).control.listen, { host: '127.0.0.1', port: 8080 });
});

test('a setting that cannot be used is refused by its name', () => {
  const refused: [string, string][] = [
    ['COPPICE_LISTEN', 'everywhere'],
    ['COPPICE_LISTEN', '127.0.0.1:99999'],
    ['COPPICE_REGION', 'US!'],
    ['COPPICE_REGISTRY_MIRRORS', 'docker.io'],
    ['COPPICE_LOG_LEVEL', 'loud'],
    ['COPPICE_UID_BASE', '0'],
    ['COPPICE_NETWORK', 'yes'],
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

test('registry mirrors and lists are read from one line', () => {
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

test('guests get a network where they can, unless it is switched off or insisted on', () => {
  assert.equal(load({}).runner.network, 'auto');
  for (const mode of ['on', 'off']) assert.equal(load({ COPPICE_NETWORK: mode }).runner.network, mode);
});

test('a machine that was set up without nft and ip has a manifest all the same', () => {
  const { nft: _nft, ip: _ip, ...others } = MANIFEST;
  assert.equal(load({}, others).runner.tools.nft, 'nft');
});

test('a manifest that is missing or of another version says to run the set-up', () => {
  assert.throws(() => loadConfig({ COPPICE_ASSETS_DIR: '/nonexistent' }), /npm run setup/u);
  assert.throws(() => load({}, { version: 2 }), /npm run setup/u);
});

test('the file that COPPICE_CONFIG names is read, and the environment wins over it', () => {
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

test('two data directories have two names in the kernel', () => {
  assert.notEqual(load({ COPPICE_DATA_DIR: '/a' }).runner.slug, load({ COPPICE_DATA_DIR: '/b' }).runner.slug);
});

test('every setting is in the reference', () => {
  const reference = readFileSync(
    new URL('../../../docs/reference/configuration.md', import.meta.url),
    'utf8',
  );
  for (const name of Object.keys(Settings.shape))
    assert.ok(reference.includes(`\`${name}\``), `${name} is not documented`);
});

test('a bootstrap key that cannot work is refused before anything starts', () => {
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
