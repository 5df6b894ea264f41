import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { choosePaths, ensurePrivateDirectory } from './default-paths.ts';

const NOTHING = { dataDir: undefined, runDir: undefined, assetsDir: undefined };
const uid = process.getuid?.() ?? 0;
const scratch = mkdtempSync(join(tmpdir(), 'paths-'));
after(() => rmSync(scratch, { recursive: true }));

test('root’s files are in the system’s directories, whatever its environment says', () => {
  const environment = { HOME: '/root', XDG_DATA_HOME: '/x', XDG_RUNTIME_DIR: '/run/user/0' };
  assert.deepEqual(choosePaths(NOTHING, 0, environment), {
    dataDir: '/var/lib/coppice',
    runDir: '/run/coppice',
    assetsDir: '/var/lib/coppice/assets',
  });
});

test('an ordinary user’s are in that user’s, by the XDG variables or without', () => {
  const own = { ...NOTHING, assetsDir: '/a' };
  assert.deepEqual(choosePaths(own, 1000, { HOME: '/home/u' }), {
    dataDir: '/home/u/.local/share/coppice',
    runDir: '/tmp/coppice-1000/coppice',
    assetsDir: '/a',
  });
  const environment = { HOME: '/home/u', XDG_DATA_HOME: '/data', XDG_RUNTIME_DIR: '/run/user/1000' };
  const { dataDir, runDir } = choosePaths(own, 1000, environment);
  assert.deepEqual([dataDir, runDir], ['/data/coppice', '/run/user/1000/coppice']);
  assert.throws(() => choosePaths(own, 1000, {}), /^PathError: COPPICE_DATA_DIR: has no default/u);
  assert.equal(choosePaths({ ...own, dataDir: '/given' }, 1000, {}).dataDir, '/given');
});

test('assets of the user win over those of the machine', () => {
  const dataDir = join(scratch, 'data');
  mkdirSync(join(dataDir, 'assets'), { recursive: true });
  writeFileSync(join(dataDir, 'assets', 'manifest.json'), '{}');
  assert.equal(choosePaths({ ...NOTHING, dataDir }, 1000, {}).assetsDir, join(dataDir, 'assets'));
});

test('a private directory is made for its owner alone, and one that is not the owner’s is refused', () => {
  const path = join(scratch, 'run', 'coppice');
  ensurePrivateDirectory('COPPICE_RUN_DIR', path, uid);
  assert.equal(statSync(path).mode & 0o777, 0o700);
  ensurePrivateDirectory('COPPICE_RUN_DIR', path, uid);
  assert.throws(
    () => ensurePrivateDirectory('COPPICE_RUN_DIR', path, uid + 1),
    /^PathError: COPPICE_RUN_DIR: .* belongs to another user/u,
  );
  symlinkSync('/etc', join(scratch, 'link'));
  assert.throws(
    () => ensurePrivateDirectory('COPPICE_RUN_DIR', join(scratch, 'link'), uid),
    /not a directory/u,
  );
  writeFileSync(join(scratch, 'file'), '');
  assert.throws(
    () => ensurePrivateDirectory('COPPICE_RUN_DIR', join(scratch, 'file'), uid),
    /not a directory/u,
  );
});

test('a directory directly in /tmp is checked with its parent', () => {
  const parent = mkdtempSync('/tmp/coppice-paths-');
  try {
    const path = join(parent, 'coppice');
    assert.throws(() => ensurePrivateDirectory('COPPICE_RUN_DIR', path, uid + 1), /belongs to another user/u);
    assert.ok(!existsSync(path));
  } finally {
    rmSync(parent, { recursive: true });
  }
});
