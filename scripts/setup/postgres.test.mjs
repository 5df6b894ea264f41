import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { chooseInstalled, findDataMajor, findMismatch, inspectPostgres } from './postgres.mjs';

const SETTINGS = [
  'COPPICE_CONFIG',
  'COPPICE_DATA_DIR',
  'COPPICE_ASSETS_DIR',
  'COPPICE_POSTGRES_BIN',
  'DATABASE_URL',
];
const earlier = SETTINGS.map((name) => /** @type {const} */ ([name, process.env[name]]));
let directory = '';

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-postgres-'));
  for (const name of SETTINGS) delete process.env[name];
  process.env['COPPICE_CONFIG'] = join(directory, 'no.env');
  process.env['COPPICE_DATA_DIR'] = join(directory, 'data');
  process.env['COPPICE_ASSETS_DIR'] = join(directory, 'assets');
});
afterEach(() => {
  for (const [name, value] of earlier) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
  rmSync(directory, { recursive: true });
});

/**
 * Makes programs that only print a version.
 * @param {string} version
 * @param {{ at?: string, names?: string[] }} [options]
 */
function installPrograms(version, { at, names = ['postgres', 'initdb', 'pg_ctl'] } = {}) {
  const bin = at ?? join(directory, 'postgresql', version.split('.', 1)[0] ?? '', 'bin');
  mkdirSync(bin, { recursive: true });
  for (const name of names) {
    writeFileSync(join(bin, name), `#!/bin/sh\necho "${name} (PostgreSQL) ${version} (Debian)"\n`);
    chmodSync(join(bin, name), 0o755);
  }
  return bin;
}

/** @param {string} major */
function makeData(major) {
  const path = join(directory, 'data', 'control', 'postgres');
  mkdirSync(path, { recursive: true });
  writeFileSync(join(path, 'PG_VERSION'), `${major}\n`);
}

const choose = (/** @type {string | undefined} */ major) =>
  chooseInstalled(major, join(directory, 'postgresql', '*', 'bin'));

test('of several installed versions, the one that made the data directory is chosen, else the newest', () => {
  assert.equal(choose(undefined), undefined);
  const [old, middle, newest] = ['15.18', '17.2', '18.0'].map((version) => installPrograms(version));
  assert.equal(choose(undefined), newest);
  assert.equal(choose('15'), old);
  assert.equal(choose('17'), middle);
  assert.equal(choose('16'), newest);
});

test('versions that are too old or incomplete are not chosen', () => {
  installPrograms('14.9');
  installPrograms('18.0', { names: ['postgres', 'initdb'] });
  assert.equal(choose('14'), undefined);
  const bin = installPrograms('15.18');
  assert.equal(choose('14'), bin);
  assert.equal(choose('18'), bin);
});

test('COPPICE_POSTGRES_BIN is used as it is, and a fault in it is no missing package', async () => {
  const bin = installPrograms('17.2');
  process.env['COPPICE_POSTGRES_BIN'] = bin;
  assert.deepEqual(await inspectPostgres(), {
    ok: true,
    path: bin,
    version: '17.2',
    detail: `17.2 (${bin})`,
  });
  process.env['COPPICE_POSTGRES_BIN'] = installPrograms('13.1');
  const old = await inspectPostgres();
  assert.equal(old.ok, false);
  assert.match(`${old.detail}; ${old.remedy}`, /COPPICE_POSTGRES_BIN: 13\.1 .* older than 15; set it/u);
  process.env['COPPICE_POSTGRES_BIN'] = directory;
  const empty = await inspectPostgres();
  assert.equal(empty.ok, false);
  assert.match(`${empty.detail}; ${empty.remedy}`, /does not hold postgres, initdb, pg_ctl; set it/u);
});

test('the version of the data directory is known, except where the database is elsewhere', () => {
  assert.equal(findDataMajor(), undefined);
  makeData('18');
  assert.equal(findDataMajor(), '18');
  process.env['DATABASE_URL'] = 'postgresql://host/name';
  assert.equal(findDataMajor(), undefined);
});

test('a data directory of another version is reported, with programs of that version if there are any', async () => {
  const [bin, fitting] = ['15.18', '98.1'].map((version) => installPrograms(version));
  assert.equal(await findMismatch(bin), undefined);
  makeData('98');
  assert.equal(await findMismatch(fitting), undefined);
  assert.equal(await findMismatch(undefined), undefined);
  const missing = await findMismatch(bin);
  assert.match(missing?.detail ?? '', /made by PostgreSQL 98, .* not start with 15\.18$/u);
  assert.match(
    missing?.remedy ?? '',
    /^install PostgreSQL 98, then run COPPICE_POSTGRES_BIN=\S+\/98\/bin npm run setup/u,
  );
  installPrograms('97.1', { at: join(directory, 'assets', 'postgres', 'older.1', 'bin') });
  const copy = installPrograms('98.4', { at: join(directory, 'assets', 'postgres', 'earlier.1', 'bin') });
  const found = await findMismatch(bin);
  assert.ok(
    found?.remedy.startsWith(`run COPPICE_POSTGRES_BIN=${copy} npm run setup to keep 98;`),
    found?.remedy,
  );
});
