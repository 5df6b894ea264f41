import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { MasterKeyError, openMasterKey } from './master-key.ts';

let directory: string;
let path: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'master-key-'));
  path = join(directory, 'master.key');
});
afterEach(() => rmSync(directory, { recursive: true }));

test('the first start makes a key that only its owner can read, and later ones find it', () => {
  const key = openMasterKey(path);
  assert.equal(key.length, 32);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  assert.deepEqual(openMasterKey(path), key);
  assert.deepEqual(readdirSync(directory), ['master.key']);
});

test('two installations have two keys', () => {
  assert.notDeepEqual(openMasterKey(path), openMasterKey(`${path}-2`));
});

test('a key that others could read is closed to them', () => {
  openMasterKey(path);
  chmodSync(path, 0o644);
  openMasterKey(path);
  assert.equal(statSync(path).mode & 0o777, 0o600);
});

test('a file that is no key is refused and stays as it is', () => {
  writeFileSync(path, 'half a key');
  assert.throws(
    () => openMasterKey(path),
    (error) => {
      return (
        error instanceof MasterKeyError && /has 10 bytes, .* put it back from a backup/.test(error.message)
      );
    },
  );
  assert.equal(statSync(path).size, 10);
});
