import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { choosePaths, networkSlug, selectSettings } from './default-paths.mjs';

const NOTHING = { dataDir: undefined, runDir: undefined, assetsDir: undefined };
const scratch = mkdtempSync(join(tmpdir(), 'paths-'));
after(() => rmSync(scratch, { recursive: true }));

test('files of root are in the system’s directories, whatever its environment contains', () => {
  const environment = { HOME: '/root', XDG_DATA_HOME: '/x', XDG_RUNTIME_DIR: '/run/user/0' };
  assert.deepEqual(choosePaths(NOTHING, 0, environment), {
    dataDir: '/var/lib/coppice',
    runDir: '/run/coppice',
    assetsDir: '/var/lib/coppice/assets',
  });
});

test('files of an ordinary user are in that user’s directories, with or without XDG variables', () => {
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

test('the run directory is derived from the data directory, so two services on one machine share no socket', () => {
  const runDirOf = (dataDir: string, uid: number, environment = {}): string =>
    choosePaths({ ...NOTHING, dataDir }, uid, environment).runDir;
  assert.equal(runDirOf('/var/lib/coppice/', 0), '/run/coppice');
  assert.equal(runDirOf('/srv/b', 0), `/run/coppice-${networkSlug('/srv/b')}`);
  assert.notEqual(runDirOf('/srv/b', 0), runDirOf('/srv/c', 0));
  const home = { HOME: '/home/u', XDG_RUNTIME_DIR: '/run/user/1000' };
  assert.equal(runDirOf('/home/u/.local/share/coppice', 1000, home), '/run/user/1000/coppice');
  assert.equal(runDirOf('/home/u/b', 1000, home), `/run/user/1000/coppice-${networkSlug('/home/u/b')}`);
  assert.equal(choosePaths({ ...NOTHING, dataDir: '/srv/b', runDir: '/run/own' }, 0, {}).runDir, '/run/own');
});

test('a service with another data directory ignores secrets, directories and ranges in the file of the machine’s service', () => {
  const common = {
    COPPICE_REGISTRY_MIRRORS: 'docker.io=http://127.0.0.1:5000',
    COPPICE_LISTEN: '127.0.0.1:80',
  };
  const own = {
    COPPICE_BOOTSTRAP_KEY: 'k',
    COPPICE_BOOTSTRAP_INVITATION: 'i',
    COPPICE_RUN_DIR: '/run/x',
    COPPICE_GUEST_CIDR: '10.1.0.0/16',
    COPPICE_UID_BASE: '5000',
    DATABASE_URL: 'postgresql://x',
  };
  const file = { ...common, ...own };
  assert.deepEqual(selectSettings(file, { COPPICE_DATA_DIR: '/srv/b' }), common);
  for (const environment of [
    {},
    { COPPICE_DATA_DIR: '/var/lib/coppice/' },
    { COPPICE_DATA_DIR: '/srv/b', COPPICE_CONFIG: '/etc/b.env' },
  ])
    assert.deepEqual(selectSettings(file, environment), file);
  const moved = { ...file, COPPICE_DATA_DIR: '/srv/b' };
  assert.deepEqual(selectSettings(moved, { COPPICE_DATA_DIR: '/srv/b' }), moved);
  assert.deepEqual(
    selectSettings(moved, { COPPICE_DATA_DIR: '/var/lib/coppice' }).COPPICE_BOOTSTRAP_KEY,
    undefined,
  );
});

test('assets of the user take precedence over those of the machine', () => {
  const dataDir = join(scratch, 'data');
  mkdirSync(join(dataDir, 'assets'), { recursive: true });
  writeFileSync(join(dataDir, 'assets', 'manifest.json'), '{}');
  assert.equal(choosePaths({ ...NOTHING, dataDir }, 1000, {}).assetsDir, join(dataDir, 'assets'));
});
