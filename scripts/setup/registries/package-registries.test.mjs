import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { findRegistries } from './package-registries.mjs';

/** @typedef {import('./package-registries.mjs').Means} Means */

const CARGO = Buffer.from('\0…sparse+https://index.crates.example/crates-io\0');
const PIP = Buffer.from(
  'PyPI = PackageIndex("https://pypi.example/", file_storage_domain="files.pypi.example")\n',
);

/** A machine without clients and network, except for those given. @param {Partial<Means>} given */
const machine = (given = {}) => ({
  ask: async () => undefined,
  readFromPackage: async () => undefined,
  readCargo: async () => undefined,
  fetchText: async () => undefined,
  cargoHome: '/nonexistent',
  ...given,
});

/** @param {Record<string, string>} answers  by a word of the arguments @returns {Means['ask']} */
const asking = (answers) => async (_command, args) =>
  Object.entries(answers).find(([word]) => args.some((arg) => arg.includes(word)))?.[1];

const CLIENTS = {
  get: 'https://npm.example/\n',
  '--json': JSON.stringify({
    registry: 'https://npm.office.example:8443/all/',
    '@office:registry': 'https://somebody:hunter2@scoped.office.example/',
    '//scoped.office.example/:username': 'somebody',
    proxy: 'http://proxy.office.example',
  }),
  list: "global.timeout='60'\n:env:.index-url='https://u:p@mirror.example/simple'\n",
  import: 'https://pypi.example/simple\nhttps://files.pypi.example\n',
};

test('npm and PyPI have their public hosts and the mirrors of the machine, without passwords', async () => {
  const { file } = await findRegistries(machine({ ask: asking(CLIENTS) }));
  assert.deepEqual(file.registries['npm'], ['npm.example', 'npm.office.example', 'scoped.office.example']);
  assert.deepEqual(file.registries['pypi'], ['pypi.example', 'files.pypi.example', 'mirror.example']);
});

test('extra indexes of pip are mirrors, too', async () => {
  const list = "global.extra-index-url='https://a.example/simple https://b.example/simple'";
  const { file } = await findRegistries(machine({ ask: asking({ ...CLIENTS, list }) }));
  assert.deepEqual(file.registries['pypi']?.slice(2), ['a.example', 'b.example']);
});

test('an unused cargo has the public index, whose config.json names the host of the downloads', async () => {
  /** @type {string[]} */
  const fetched = [];
  const fetchText = async (/** @type {string} */ address) => {
    fetched.push(address);
    return '{"dl":"https://static.crates.example/crates","api":"https://crates.example"}';
  };
  const { file, problems } = await findRegistries(machine({ readCargo: async () => CARGO, fetchText }));
  assert.deepEqual(file.registries['crates'], ['index.crates.example', 'static.crates.example']);
  assert.deepEqual(fetched, ['https://index.crates.example/config.json']);
  assert.deepEqual(
    problems.map(([name]) => name),
    ['npm', 'pypi'],
  );
});

test('a mirror in cargo’s configuration does not replace the public hosts', async (t) => {
  const cargoHome = mkdtempSync(join(tmpdir(), 'cargo-'));
  t.after(() => rmSync(cargoHome, { recursive: true }));
  const lines = [
    '[source.crates-io]',
    'replace-with = "office"',
    '[source.office]',
    'registry = "sparse+https://crates.office.example/index/"',
    '[net]',
    'registry = "https://elsewhere.example"',
  ];
  writeFileSync(join(cargoHome, 'config.toml'), lines.join('\n'));
  for (const name of ['crates.office.example-0123456789abcdef', 'unused.example-0123456789abcdef']) {
    const index = join(cargoHome, 'registry', 'index', name);
    mkdirSync(index, { recursive: true });
    writeFileSync(join(index, 'config.json'), `{"dl":"https://dl.${name.slice(0, 6)}.example/crates"}`);
  }
  const { file } = await findRegistries(
    machine({
      readCargo: async () => CARGO,
      fetchText: async () => '{"dl":"https://static.crates.example/crates"}',
      cargoHome,
    }),
  );
  assert.deepEqual(file.registries['crates'], [
    'index.crates.example',
    'static.crates.example',
    'crates.office.example',
    'dl.crates.example',
  ]);
});

test('for clients that are not installed, the hosts are read from the distribution’s packages', async () => {
  const files = new Map([
    ['cargo', CARGO],
    ['python3-pip', PIP],
  ]);
  const means = machine({
    readFromPackage: async ({ name }) => files.get(name),
    fetchText: async () => '{"dl":"https://static.crates.example/crates"}',
  });
  const { file } = await findRegistries(means);
  assert.deepEqual(file.registries['crates'], ['index.crates.example', 'static.crates.example']);
  assert.deepEqual(file.registries['pypi'], ['pypi.example', 'files.pypi.example']);
  assert.deepEqual(file.incomplete, ['npm']);
});

test('a registry with no hosts, or with some missing, is named with a remedy', async () => {
  const nothing = await findRegistries(machine());
  assert.deepEqual(nothing.file.registries, { npm: [], pypi: [], crates: [] });
  assert.deepEqual(nothing.problems, [
    ['npm', 'install npm'],
    ['pypi', 'install python3-pip'],
    ['crates', 'install cargo'],
  ]);
  const unreachable = machine({ ask: asking(CLIENTS), readCargo: async () => CARGO });
  const { file, problems } = await findRegistries(unreachable);
  assert.deepEqual(file.registries['crates'], ['index.crates.example']);
  assert.deepEqual(file.incomplete, ['crates']);
  assert.deepEqual(problems, [['crates', 'let this machine reach index.crates.example']]);
  const failing = machine({
    readFromPackage: () => Promise.reject(new Error('downloading cargo: apt-get failed\n  | 404')),
  });
  assert.deepEqual((await findRegistries(failing)).problems[2], [
    'crates',
    'downloading cargo: apt-get failed',
  ]);
});

test('known public hosts are looked up again only with refresh, and stay if that fails', async () => {
  const known = {
    npm: ['npm.example'],
    pypi: ['pypi.example'],
    crates: ['index.crates.example', 'static.crates.example'],
  };
  const contacted = () => assert.fail('a host was contacted');
  const offline = machine({
    readCargo: async () => CARGO,
    readFromPackage: contacted,
    fetchText: contacted,
  });
  const { file, problems } = await findRegistries(offline, { known });
  assert.deepEqual([file.registries, problems], [known, []]);
  const renewed = machine({
    readCargo: async () => CARGO,
    fetchText: async () => '{"dl":"https://new.crates.example/crates"}',
  });
  const after = await findRegistries(renewed, { known, refresh: true });
  assert.deepEqual(after.file.registries, {
    ...known,
    crates: ['index.crates.example', 'new.crates.example'],
  });
});

test('unusable answers count as none', async () => {
  const useless = { get: 'file:///srv/npm', '--json': 'npm error', list: 'none', import: '' };
  const { file } = await findRegistries(machine({ ask: asking(useless) }));
  assert.deepEqual(file.registries, { npm: [], pypi: [], crates: [] });
});
