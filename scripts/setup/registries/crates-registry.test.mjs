import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { askCargoForDownloads, findBuiltInIndex } from './crates-registry.mjs';

test('the index is found among other texts of a program, and only as a complete address', () => {
  const texts = ['sparse+https://iints_inheritance:', '…sparse+https://', 'sparse+https://index.example/x'];
  assert.equal(findBuiltInIndex(Buffer.from(texts.join('\0'))), 'https://index.example/');
  assert.equal(findBuiltInIndex(Buffer.from(texts.slice(0, 2).join('\0'))), undefined);
  assert.equal(findBuiltInIndex(Buffer.alloc(0)), undefined);
});

/**
 * A fake cargo that reads the index like the real one.
 * @param {string} version
 */
function makeCargo(version) {
  /** @type {{ calls: string[][], directory: string, manifest: string, home: string }} */
  const seen = { calls: [], directory: '', manifest: '', home: '' };
  /** @type {import('./ask-client.mjs').Ask} */
  const ask = async (_command, args, env = {}) => {
    seen.calls.push(args);
    if (args[0] === '--version') return `cargo ${version} (f2d3ce0bd 2026-03-21)\n`;
    const path = args.at(-1) ?? '';
    seen.directory = dirname(path);
    seen.manifest = readFileSync(path, 'utf8');
    seen.home = env['CARGO_HOME'] ?? '';
    for (const host of ['index.example', 'other.example']) {
      const index = join(seen.home, 'registry', 'index', `${host}-0123456789abcdef`);
      mkdirSync(index, { recursive: true });
      writeFileSync(join(index, 'config.json'), `{"dl":"https://dl.${host}/crates"}`);
    }
    return undefined; // it may fail afterwards
  };
  return { ask, seen };
}

test('cargo runs in a home and a workspace of its own, which are removed afterwards', async () => {
  const { ask, seen } = makeCargo('1.95.0');
  assert.deepEqual(await askCargoForDownloads(ask, 'index.example'), ['dl.index.example']);
  assert.match(seen.manifest, /^\[workspace\]$/mu);
  assert.equal(dirname(seen.home), seen.directory);
  assert.equal(existsSync(seen.directory), false);
});

test('a cargo that would fetch the whole index with git is not run', async () => {
  for (const version of ['1.66.0', '0.66.0', '1.67.1']) {
    const { ask, seen } = makeCargo(version);
    assert.deepEqual(await askCargoForDownloads(ask, 'index.example'), [], version);
    assert.deepEqual(seen.calls, [['--version']]);
  }
  const { seen, ask } = makeCargo('1.68.0');
  await askCargoForDownloads(ask, 'index.example');
  assert.equal(seen.calls.length, 2);
});
