import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { ensureArtefact } from './artefact.mjs';

let assets = '';
const before = process.env['COPPICE_ASSETS_DIR'];

beforeEach(() => {
  assets = mkdtempSync(join(tmpdir(), 'artefact-'));
  process.env['COPPICE_ASSETS_DIR'] = assets;
});
afterEach(() => {
  rmSync(assets, { recursive: true });
  if (before === undefined) delete process.env['COPPICE_ASSETS_DIR'];
  else process.env['COPPICE_ASSETS_DIR'] = before;
});

/** @param {unknown} recipe @param {{ refresh?: boolean, builds?: string[] }} [options] */
function ensure(recipe, options = {}) {
  return ensureArtefact({
    kind: 'thing',
    recipe,
    refresh: options.refresh ?? false,
    build: async (directory) => {
      options.builds?.push(directory);
      await writeFile(join(directory, 'content'), JSON.stringify(recipe));
    },
  });
}

test('a recipe is built once, and another recipe gets a build of its own', async () => {
  /** @type {string[]} */
  const builds = [];
  const first = await ensure({ a: 1 }, { builds });
  assert.equal(await ensure({ a: 1 }, { builds }), first);
  const second = await ensure({ a: 2 }, { builds });
  assert.notEqual(second, first);
  assert.equal(await readFile(join(first, 'content'), 'utf8'), '{"a":1}');
  assert.equal(builds.length, 2);
});

test('a refresh builds again, and later calls find the new build', async () => {
  const first = await ensure({ a: 1 });
  const second = await ensure({ a: 1 }, { refresh: true });
  assert.notEqual(second, first);
  assert.ok(existsSync(first), 'a running service may still use the earlier build');
  assert.equal(await ensure({ a: 1 }), second);
});

test('a failed build leaves nothing, and the remains of a killed build are removed', async () => {
  mkdirSync(join(assets, 'thing', '.building-999999'), { recursive: true });
  const failing = ensureArtefact({
    kind: 'thing',
    recipe: 1,
    build: () => Promise.reject(new Error('no space')),
  });
  await assert.rejects(failing, /no space/);
  assert.deepEqual(readdirSync(join(assets, 'thing')), []);
});

test('only the latest builds are kept', async () => {
  for (let recipe = 0; recipe < 8; recipe += 1) await ensure(recipe);
  assert.equal(readdirSync(join(assets, 'thing')).length, 5);
  assert.ok(existsSync(await ensure(7)));
});

test('with olderWill, a failed build falls back to an older one, but not on a refresh', async () => {
  const older = await ensure({ a: 1 });
  const failing = {
    kind: 'thing',
    recipe: { a: 2 },
    olderWill: true,
    build: async () => {
      throw new Error('no mirror');
    },
  };
  assert.equal(await ensureArtefact(failing), older);
  await assert.rejects(ensureArtefact({ ...failing, refresh: true }), /no mirror/);
  await assert.rejects(ensureArtefact({ ...failing, olderWill: false }), /no mirror/);
});
