import assert from 'node:assert/strict';
import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { LoopbackServer } from '../../../sdk/src/testing/loopback-server.ts';
import { CliUser } from '../testing/cli-process.ts';
import { readKey } from './ask-key.ts';
import { chooseSource, type GlobalOptions } from './connection.ts';
import {
  changeProfiles,
  profilePath,
  readProfiles,
  requireProfileName,
  type ProfileFile,
} from './profile-file.ts';

const directory = mkdtempSync(join(tmpdir(), 'cop-profiles-'));
after(() => rmSync(directory, { recursive: true }));
const KEY = 'cop_live_us_secret';
const WORK = { url: 'https://work.example', key: 'cop_live_us_work' };
const HOME = { url: 'http://127.0.0.1:8080', key: 'cop_live_us_home' };
const FILE: ProfileFile = {
  current: 'home',
  profiles: new Map([
    ['work', WORK],
    ['home', HOME],
  ]),
};

const choose = (options: GlobalOptions, env: NodeJS.ProcessEnv = {}, file = FILE) =>
  chooseSource(options, env, () => file);

test('the file lies in XDG_CONFIG_HOME if that is absolute, else in the home directory', () => {
  assert.equal(profilePath({ XDG_CONFIG_HOME: '/etc/xdg', HOME: '/root' }), '/etc/xdg/coppice/config.json');
  assert.equal(profilePath({ XDG_CONFIG_HOME: 'xdg', HOME: '/root' }), '/root/.config/coppice/config.json');
});

test('stored profiles are read again, from a file and a directory that only the owner can read', async () => {
  const path = join(directory, 'new', 'coppice', 'config.json');
  assert.deepEqual(readProfiles(path), { current: null, profiles: new Map() });
  const before = process.umask(0);
  assert.deepEqual(await changeProfiles(() => FILE, path), FILE);
  process.umask(before);
  assert.deepEqual(readProfiles(path), FILE);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  assert.equal(statSync(join(path, '..')).mode & 0o777, 0o700);
  await changeProfiles(() => ({ current: null, profiles: new Map() }), path);
  assert.deepEqual(readdirSync(join(path, '..')), ['config.json']);
});

test('a file that others may read, or that is damaged, is refused without its content', () => {
  const path = join(directory, 'config.json');
  for (const mode of [0o640, 0o604, 0o620]) {
    writeFileSync(path, '{}');
    chmodSync(path, mode);
    assert.throws(() => readProfiles(path), /other users may read it: run chmod 600 .*config\.json/u);
  }
  chmodSync(path, 0o600);
  const cases: [string, RegExp][] = [
    [`{"key": ${KEY}`, /it is not JSON/u],
    ['[]', /it is not an object/u],
    ['{"version":2}', /version is not 1/u],
    [`{"version":1,"profiles":{"x":{"key":"${KEY}"}}}`, /profile x has no url/u],
  ];
  for (const [text, message] of cases) {
    writeFileSync(path, text);
    assert.throws(
      () => readProfiles(path),
      (error: Error) => message.test(error.message) && !error.message.includes(KEY),
    );
  }
});

test('a failed change leaves the file as it was, and nothing beside it', async () => {
  const path = join(directory, 'kept', 'config.json');
  await changeProfiles(() => FILE, path);
  const change = (): ProfileFile => {
    throw new Error('no');
  };
  await assert.rejects(changeProfiles(change, path), /no/u);
  assert.deepEqual(readProfiles(path), FILE);
  assert.deepEqual(readdirSync(join(path, '..')), ['config.json']);
});

test('one process at a time changes the file, and what a killed one left is removed', async () => {
  const path = join(directory, 'shared', 'config.json');
  await changeProfiles(() => FILE, path);
  const next = `${path}.new`;
  writeFileSync(next, KEY);
  await assert.rejects(
    changeProfiles(() => FILE, path, 50),
    /another coppice is changing the profiles: .*\.new/u,
  );
  assert.equal(readFileSync(next, 'utf8'), KEY);
  utimesSync(next, 0, 0);
  await changeProfiles((file) => ({ ...file, current: 'work' }), path, 50);
  assert.equal(readProfiles(path).current, 'work');
  assert.deepEqual(readdirSync(join(path, '..')), ['config.json']);
});

test('a login keeps the profiles that others stored while it waited for its key', async () => {
  await using server = await LoopbackServer.answering(200, []);
  using user = new CliUser();
  const login = ['login', '--url', server.url, '--key-stdin', '--profile'];
  const first = user.start(...login, 'first');
  first.child.stdin.write('cop_live_us_');
  assert.equal((await user.run([...login, 'second'], KEY)).code, 0);
  first.child.stdin.end('first');
  assert.equal((await first.result()).code, 0);
  const listed = JSON.parse((await user.run(['profiles', '--json'])).stdout) as { name: string }[];
  assert.deepEqual(
    listed.map(({ name }) => name),
    ['second', 'first'],
  );
});

test('--profile precedes the environment, which precedes the current profile', () => {
  const env = { SANDBOX_API_KEY: KEY, SANDBOX_BASE_URL: 'https://env.example' };
  assert.deepEqual(choose({ profile: 'work' }, env), WORK);
  assert.deepEqual(choose({}, env), { key: KEY, url: undefined });
  assert.deepEqual(choose({ url: 'https://other.example' }, env), { key: KEY, url: 'https://other.example' });
  assert.deepEqual(choose({}), HOME);
  assert.deepEqual(choose({}, { SANDBOX_API_KEY: '', SANDBOX_BASE_URL: '' }), HOME);
});

test('a stored key is used only for its own address', () => {
  assert.deepEqual(choose({ url: 'https://work.example/' }), WORK);
  assert.deepEqual(choose({}, { SANDBOX_BASE_URL: 'https://WORK.example' }), WORK);
  assert.throws(
    () => choose({ url: 'https://evil.example' }),
    /no key for https:\/\/evil\.example: run "coppice login --url/u,
  );
  assert.throws(() => choose({}, { SANDBOX_BASE_URL: 'https://evil.example' }), /no key for/u);
  assert.throws(() => choose({ profile: 'work', url: 'https://evil.example' }), /leave out --url/u);
});

test('the current profile precedes another one of the same address', () => {
  const second = { url: HOME.url, key: 'cop_live_us_second' };
  const profiles = new Map([
    ['home', HOME],
    ['second', second],
  ]);
  assert.deepEqual(choose({ url: HOME.url }, {}, { current: 'second', profiles }), second);
});

test('a missing key or profile names the next step', () => {
  assert.throws(() => choose({}, {}, { current: null, profiles: new Map() }), /run "coppice login"/u);
  assert.throws(() => choose({}, {}, { ...FILE, current: null }), /run "coppice use <name>"/u);
  assert.throws(() => choose({ profile: 'absent' }), /coppice login --profile absent/u);
  for (const name of ['', '-x', 'a b', '../x', 'x'.repeat(65)])
    assert.throws(() => requireProfileName(name), /--profile: a name has/u);
});

test('a key on standard input has no white space around it, and a limit', async () => {
  async function* input(...texts: string[]) {
    for (const text of texts) yield Buffer.from(text);
  }
  assert.equal(await readKey(input('  cop_', 'x\n')), 'cop_x');
  await assert.rejects(readKey(input('\n')), /the key is empty/u);
  await assert.rejects(readKey(input('x'.repeat(5000))), /holds more than a key/u);
});
