import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { findCratesHosts, findNpmHosts, findPypiHosts } from './package-registries.mjs';

/** @param {Record<string, string>} answers  by a word of the arguments */
const asking =
  (answers) =>
  /** @param {string} _command @param {string[]} args */
  async (_command, args) =>
    Object.entries(answers).find(([word]) => args.some((arg) => arg.includes(word)))?.[1];

test('npm names its registry and those of scopes, and their passwords are left out', async () => {
  const config = {
    registry: 'https://npm.office.example:8443/all/',
    '@office:registry': 'https://somebody:hunter2@scoped.office.example/',
    '//scoped.office.example/:username': 'somebody',
    proxy: 'http://proxy.office.example',
  };
  const hosts = await findNpmHosts(asking({ config: JSON.stringify(config) }));
  assert.deepEqual(hosts, ['npm.office.example', 'scoped.office.example']);
});

test('pip names its index and extra ones, and without any the standard of its own', async () => {
  const list = [
    "global.timeout='60'",
    "global.extra-index-url='https://a.example/simple https://b.example/simple'",
    ":env:.index-url='https://u:p@mirror.example/simple'",
  ].join('\n');
  assert.deepEqual(await findPypiHosts(asking({ config: list, import: 'https://standard.example/' })), [
    'mirror.example',
    'a.example',
    'b.example',
  ]);
  const standard = asking({ import: 'https://standard.example/simple\nhttps://files.example\n' });
  assert.deepEqual(await findPypiHosts(standard), ['standard.example', 'files.example']);
});

test('cargo’s configuration counts, else what it has used', () => {
  const home = mkdtempSync(join(tmpdir(), 'cargo-'));
  try {
    assert.deepEqual(findCratesHosts(home), []);
    const index = join(home, 'registry', 'index', 'index.crates.example-0123456789abcdef');
    mkdirSync(index, { recursive: true });
    writeFileSync(join(index, 'config.json'), '{"dl":"https://static.crates.example/crates"}');
    assert.deepEqual(findCratesHosts(home), ['index.crates.example', 'static.crates.example']);
    const lines = [
      '[source.crates-io]',
      'replace-with = "office"',
      '[source.office]',
      'registry = "sparse+https://crates.office.example/index/"',
      '[net]',
      'registry = "https://elsewhere.example"',
    ];
    writeFileSync(join(home, 'config.toml'), lines.join('\n'));
    assert.deepEqual(findCratesHosts(home), ['crates.office.example']);
  } finally {
    rmSync(home, { recursive: true });
  }
});

test('clients that are not there, or say nothing of use, have no hosts', async () => {
  const nobody = asking({});
  assert.deepEqual(await findNpmHosts(nobody), []);
  assert.deepEqual(await findPypiHosts(nobody), []);
  assert.deepEqual(await findNpmHosts(asking({ config: 'npm error' })), []);
  assert.deepEqual(await findNpmHosts(asking({ config: '{"registry":"file:///srv/npm"}' })), []);
});
