import assert from 'node:assert/strict';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { choosePostgresPackages, GUARD_TEXT, removeGuard, withoutMainCluster } from './postgres-packages.mjs';

const path = process.env['PATH'] ?? '';
let common = '';
let guard = '';

beforeEach(() => {
  common = join(mkdtempSync(join(tmpdir(), 'coppice-cluster-')), 'postgresql-common');
  guard = join(common, 'createcluster.d', 'zz-coppice.conf');
});
afterEach(() => {
  process.env['PATH'] = path;
  rmSync(join(common, '..'), { recursive: true });
});

/**
 * Puts a shell script into PATH.
 * @param {string} name
 * @param {string} script
 */
function makeProgram(name, script) {
  const bin = join(common, '..', 'bin');
  mkdirSync(bin);
  writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`);
  chmodSync(join(bin, name), 0o755);
  process.env['PATH'] = `${bin}:${path}`;
}

/**
 * Makes a configuration, and a program that reads it.
 * @param {'on' | 'off'} read
 */
function configureClusters(read) {
  mkdirSync(common);
  writeFileSync(join(common, 'createcluster.conf'), 'of its owner\n');
  makeProgram('pg_conftool', `echo ${read}`);
}

test('the package of one major version is installed: that of the data directory if apt has it, else the release’s', async () => {
  const data = join(common, '..', 'data', 'control', 'postgres');
  const settings = { COPPICE_CONFIG: join(common, 'no.env'), COPPICE_DATA_DIR: join(common, '..', 'data') };
  const earlier = Object.keys(settings).map((name) => [name, process.env[name]]);
  Object.assign(process.env, settings);
  // Of several arguments, apt-cache show gets the name last.
  makeProgram(
    'apt-cache',
    `for name; do :; done
    case $name in
    postgresql) echo 'Version: 17+278'; echo 'Depends: postgresql-17' ;;
    postgresql-1[67]) echo 'Version: 1.0' ;;
    *) exit 100 ;;
    esac`,
  );
  try {
    assert.deepEqual(await choosePostgresPackages(), ['postgresql-17']);
    mkdirSync(data, { recursive: true });
    writeFileSync(join(data, 'PG_VERSION'), '16\n');
    assert.deepEqual(await choosePostgresPackages(), ['postgresql-16']);
    writeFileSync(join(data, 'PG_VERSION'), '18\n');
    assert.deepEqual(await choosePostgresPackages(), ['postgresql-17']);
  } finally {
    for (const [name, value] of earlier) {
      if (name === undefined) continue;
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  }
});

test('during the installation packages make no cluster; afterwards nothing is left of the setting', async () => {
  const mask = process.umask(0o077);
  try {
    const result = await withoutMainCluster(async () => {
      assert.equal(readFileSync(guard, 'utf8'), GUARD_TEXT);
      assert.match(GUARD_TEXT, /^create_main_cluster = false$/mu);
      assert.equal(statSync(common).mode & 0o777, 0o755);
      return 'installed';
    }, common);
    assert.equal(result, 'installed');
  } finally {
    process.umask(mask);
  }
  assert.equal(existsSync(common), false);
});

test('the configuration of an installed postgresql-common is not changed', async () => {
  configureClusters('off');
  mkdirSync(join(common, 'createcluster.d'));
  writeFileSync(join(common, 'createcluster.d', 'own.conf'), 'ssl = off\n');
  await withoutMainCluster(async () => assert.equal(existsSync(guard), true), common);
  assert.deepEqual(readdirSync(common).toSorted(), ['createcluster.conf', 'createcluster.d']);
  assert.deepEqual(readdirSync(join(common, 'createcluster.d')), ['own.conf']);
});

test('nothing is installed beside a configuration that would make a cluster all the same', async () => {
  configureClusters('on');
  const install = () => assert.fail('installed');
  await assert.rejects(withoutMainCluster(install, common), {
    name: 'SetupError',
    message: /createcluster\.conf lets the package of PostgreSQL make/u,
  });
  assert.deepEqual(readdirSync(common), ['createcluster.conf']);
});

test('after a failed installation the setting stays, until it succeeds or is removed', async () => {
  const failing = () => Promise.reject(new Error('no mirror'));
  await assert.rejects(withoutMainCluster(failing, common), /no mirror/u);
  assert.equal(existsSync(guard), true);
  assert.equal(await removeGuard(common), true);
  assert.equal(existsSync(common), false);
  assert.equal(await removeGuard(common), false);
});

test('a file of the same name that set-up did not write stays', async () => {
  mkdirSync(join(common, 'createcluster.d'), { recursive: true });
  writeFileSync(guard, 'create_main_cluster = true\n');
  assert.equal(await removeGuard(common), false);
  assert.equal(existsSync(guard), true);
});
