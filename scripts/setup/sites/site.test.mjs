import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { DASHBOARD } from './dashboard.mjs';
import { DOCUMENTATION } from './documentation.mjs';
import { ensureSite } from './site.mjs';

const GOOD = `require('node:fs').writeFileSync(process.argv[2] + '/index.html.gz', 'x')`;
const BAD = `console.error('a page has a fault'); process.exit(1)`;
const before = process.env['COPPICE_ASSETS_DIR'];
let directory = '';

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-site-'));
  process.env['COPPICE_ASSETS_DIR'] = join(directory, 'assets');
});
afterEach(() => {
  rmSync(directory, { recursive: true });
  if (before === undefined) delete process.env['COPPICE_ASSETS_DIR'];
  else process.env['COPPICE_ASSETS_DIR'] = before;
});

/** @param {string} program @param {boolean} isRequired */
function ensure(program, isRequired) {
  const builder = join(directory, 'builder.cjs');
  writeFileSync(builder, program);
  const buildRecipe = async () => ({ program });
  const site = { kind: 'site', name: 'site', place: '/site', builder, buildRecipe };
  return ensureSite(site, process.execPath, { isRequired });
}

test('a site is built into a directory of the assets, once', async () => {
  const built = (await ensure(GOOD, true)) ?? '';
  assert.ok(built.startsWith(join(directory, 'assets', 'site', '/')), built);
  assert.equal(readFileSync(join(built, 'index.html.gz'), 'utf8'), 'x');
  assert.equal(await ensure(GOOD, false), built);
});

test('a build that fails does not keep the service from starting: an earlier one is used, or none', async () => {
  assert.equal(await ensure(BAD, false), undefined);
  const built = await ensure(GOOD, false);
  assert.equal(await ensure(BAD, false), built);
  await assert.rejects(ensure(BAD, true), /a page has a fault/u);
});

test('a recipe that cannot be read is not worse than a build that fails', async () => {
  const buildRecipe = () => Promise.reject(new Error('no such folder'));
  const site = { kind: 'site', name: 'site', place: '/site', builder: 'none', buildRecipe };
  assert.equal(await ensureSite(site, process.execPath, { isRequired: false }), undefined);
  await assert.rejects(ensureSite(site, process.execPath, { isRequired: true }), /no such folder/u);
});

test('the builders exist, and two recipes of one checkout are the same', async () => {
  for (const { builder, buildRecipe } of [DASHBOARD, DOCUMENTATION]) {
    assert.ok(existsSync(builder), builder);
    assert.deepEqual(await buildRecipe(), await buildRecipe());
  }
});
