import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { addMasterKey, forgetOlderKeys, MasterKeyError, openMasterKeys } from './master-key.ts';

let directory: string;
let path: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'master-key-'));
  path = join(directory, 'master.key');
});
afterEach(() => rmSync(directory, { recursive: true }));

test('the first start creates a key that only its owner can read, and later starts find it', () => {
  const key = openMasterKeys(path);
  assert.equal(key.current.length, 32);
  assert.deepEqual(key.older, []);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  assert.deepEqual(openMasterKeys(path), key);
  assert.deepEqual(readdirSync(directory), ['master.key']);
});

test('two installations have two keys', () => {
  assert.notDeepEqual(openMasterKeys(path), openMasterKeys(`${path}-2`));
});

test('a key that others could read becomes readable only to its owner', () => {
  openMasterKeys(path);
  chmodSync(path, 0o644);
  openMasterKeys(path);
  assert.equal(statSync(path).mode & 0o777, 0o600);
});

test('a file that is no key is refused and stays unchanged', () => {
  writeFileSync(path, 'half a key');
  assert.throws(
    () => openMasterKeys(path),
    (error) => {
      return (
        error instanceof MasterKeyError && /has 10 bytes, .* put it back from a backup/.test(error.message)
      );
    },
  );
  assert.equal(statSync(path).size, 10);
});

test('an added key becomes the current one, and the one before still opens until it is removed', () => {
  const { current: first } = openMasterKeys(path);
  const added = addMasterKey(path);
  assert.notDeepEqual(added.current, first);
  assert.deepEqual(openMasterKeys(path), { current: added.current, older: [first] });
  assert.equal(statSync(path).mode & 0o777, 0o600);
  forgetOlderKeys(path);
  assert.deepEqual(openMasterKeys(path), { current: added.current, older: [] });
});
