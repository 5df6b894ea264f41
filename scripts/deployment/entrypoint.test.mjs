import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { parse } from 'yaml';
import { REPOSITORY } from '../setup/paths.mjs';

const ENTRY_POINT = join(REPOSITORY, 'deploy/container/entrypoint.sh');
const EX_CONFIG = 78;

let directory = '';
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-entry-point-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

/**
 * @param {string[]} args
 * @param {Record<string, string>} [settings]
 */
function start(args, settings = {}) {
  const env = { PATH: process.env['PATH'], COPPICE_DATA_DIR: join(directory, 'data'), ...settings };
  return spawnSync(ENTRY_POINT, args, { env, encoding: 'utf8', timeout: 20_000 });
}

test('a control does not start with a master key of its own', () => {
  const { status, stderr } = start(['control']);
  assert.equal(status, EX_CONFIG);
  assert.match(stderr, /COPPICE_MASTER_KEY_FILE is not set: name a file/u);
  const absent = start(['control'], { COPPICE_MASTER_KEY_FILE: join(directory, 'absent') });
  assert.match(absent.stderr, /COPPICE_MASTER_KEY_FILE: .*absent does not exist/u);
});

test('the shared master key is in the place of control before it starts, for control alone', () => {
  const given = join(directory, 'given');
  writeFileSync(given, 'k'.repeat(32));
  const { stderr } = start(['control'], { COPPICE_MASTER_KEY_FILE: given });
  assert.match(stderr, /lacks the built service/u, 'this is no image');
  const path = join(directory, 'data/control/master.key');
  assert.equal(readFileSync(path, 'utf8'), 'k'.repeat(32));
  assert.equal(statSync(path).mode & 0o777, 0o600);
});

test('a master key that would be lost with the container is not made', () => {
  const given = join(directory, 'given');
  writeFileSync(given, 'k'.repeat(32));
  const { status, stderr } = start(['admin', 'master-key', 'rotate'], { COPPICE_MASTER_KEY_FILE: given });
  assert.equal(status, EX_CONFIG);
  assert.match(stderr, /a new master key would be lost/u);
  assert.ok(!existsSync(join(directory, 'data')));
});

test('whatever else is asked for is refused with what there is', () => {
  for (const args of [[], ['token'], ['runners']])
    assert.match(start(args).stderr, /name what to run: control, runner, join, wait or admin/u);
});

test('the commands in the Compose file are those of the entry point', () => {
  const text = readFileSync(ENTRY_POINT, 'utf8');
  const compose = readFileSync(join(REPOSITORY, 'deploy/compose/compose.yaml'), 'utf8');
  const { services } = parse(compose, { merge: true });
  const commands = ['control-1', 'control-2', 'runner'].map((name) => services[name].command[0]);
  const called = [...compose.matchAll(/entrypoint\.sh (\w+)/gu)].map(([, command]) => command);
  assert.ok(called.length > 0);
  for (const command of [...commands, ...called]) assert.match(text, new RegExp(`^${command}\\)`, 'mu'));
});
