import assert from 'node:assert/strict';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { parseEnv } from 'node:util';
import { networkSlug } from '../../packages/server/src/config/default-paths.mjs';
import { REPOSITORY } from '../setup/paths.mjs';
import { isMadeBySetUp } from './account-removal.mjs';
import { removeCgroups } from './cgroup-removal.mjs';
import { GO_PROGRAMS } from '../setup/go-programs.mjs';
import { ASSETS_ENTRIES, DATA_ENTRIES, listMountPoints, removeEntries } from './directories.mjs';
import { buildEnvironmentFile, generateInvitation, generateKey } from './environment-file.mjs';
import { forgetInstallation, listOthers } from './installations.mjs';
import { buildNetworkNames, listOwnAddresses } from './network-removal.mjs';
import { RemovalReport } from './removal-report.mjs';
import { buildSignUpLink } from './sign-up-link.mjs';
import { fillUnit, ROLES, UNIT_NAMES } from './unit.mjs';

let directory = '';
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-service-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

test('the unit runs this checkout, also with special characters in its path', () => {
  const template = readFileSync(join(REPOSITORY, 'deploy', 'coppice.service'), 'utf8');
  const unit = fillUnit(template, {
    node: '/opt/node',
    main: '/srv/my 100% $app/main.ts',
    repository: '/srv/my 100%',
  });
  assert.match(unit, /^ExecStart=\/opt\/node "\/srv\/my 100%% \$\$app\/main\.ts"$/mu);
  assert.match(unit, /^Documentation=file:\/\/\/srv\/my%%20100%%25\/docs/mu);
  assert.match(unit, /^KillMode=process$/mu);
});

/** @param {import('./unit.mjs').Role} role */
function readUnit(role) {
  return readFileSync(join(REPOSITORY, 'deploy', UNIT_NAMES[role]), 'utf8');
}

/**
 * Returns the settings of a unit that decide its rights and what happens to its VMs.
 * @param {string} unit
 */
function listRights(unit) {
  return unit
    .slice(unit.indexOf('KillMode='))
    .split('\n')
    .filter((line) => /^\w+=/u.test(line));
}

test('each role has a unit that starts this role alone', () => {
  const commands = ROLES.map((role) => /^ExecStart=(.*)$/mu.exec(readUnit(role))?.[1]);
  assert.deepEqual(commands, ['@NODE@ @MAIN@', '@NODE@ @MAIN@ control', '@NODE@ @MAIN@ runner']);
});

test('a runner alone has the rights that it has beside a control, and a control alone has none over VMs', () => {
  assert.deepEqual(listRights(readUnit('runner')), listRights(readUnit('all')));
  const control = listRights(readUnit('control'));
  assert.ok(control.includes('PrivateDevices=yes'), 'neither KVM nor TUN');
  const rights = control.find((line) => line.startsWith('CapabilityBoundingSet=')) ?? '';
  assert.match(rights, /CAP_SETUID/u);
  assert.doesNotMatch(rights, /CAP_(?:SYS|NET)_|CAP_KILL|CAP_MKNOD|CAP_DAC_OVERRIDE/u);
});

test('a configuration file parses to the settings that were written', () => {
  const settings = { COPPICE_LISTEN: '[::1]:80', COPPICE_DATA_DIR: '/srv/a b#c' };
  const text = buildEnvironmentFile({ unit: 'coppice', key: 'cop_live_us_x', invitation: 'inv_x', settings });
  const secrets = { COPPICE_BOOTSTRAP_KEY: 'cop_live_us_x', COPPICE_BOOTSTRAP_INVITATION: 'inv_x' };
  assert.deepEqual({ ...parseEnv(text) }, { ...settings, ...secrets });
  assert.throws(
    () => buildEnvironmentFile({ unit: 'coppice', settings: { COPPICE_USER: 'a\nb' } }),
    /COPPICE_USER/u,
  );
});

test('a generated key and invitation have the format that the service requires', () => {
  assert.match(generateKey('eu'), /^cop_live_eu_[0-9A-Za-z]{40}$/u);
  assert.notEqual(generateKey('eu'), generateKey('eu'));
  assert.match(generateInvitation(), /^inv_[A-Za-z0-9_-]{43}$/u);
});

test('the link to sign up has the address of the service, and the invitation only in its fragment', () => {
  const build = (/** @type {string} */ listen, hasTls = false) =>
    buildSignUpLink({ listen, hasTls, invitation: 'inv_x' });
  assert.equal(build('127.0.0.1:8080'), 'http://127.0.0.1:8080/sign-up#invitation=inv_x');
  assert.equal(build('[::1]:8443', true), 'https://[::1]:8443/sign-up#invitation=inv_x');
  for (const all of ['0.0.0.0:8080', '[::]:8080']) {
    const { host } = new URL(build(all) ?? 'none:');
    assert.equal(host, `${hostname().toLowerCase()}:8080`);
  }
  for (const unknown of ['127.0.0.1:0', '127.0.0.1', '::1:80', '[::1:80', ''])
    assert.equal(build(unknown), undefined);
});

test('of the addresses on lo, only those with our label are removed, and never one of 127.0.0.0/8', () => {
  const { label, tap } = buildNetworkNames('/var/lib/coppice');
  const links = [
    {
      ifname: 'lo',
      addr_info: [
        { family: 'inet', local: '127.0.0.1', prefixlen: 8, label: 'lo' },
        { family: 'inet', local: '127.0.0.9', prefixlen: 8, label },
        { family: 'inet', local: '10.202.0.1', prefixlen: 32, label },
        { family: 'inet', local: '10.9.0.1', prefixlen: 32, label: 'lo:other' },
        { family: 'inet6', local: '::1', prefixlen: 128 },
      ],
    },
    { ifname: 'eth0', addr_info: [{ family: 'inet', local: '10.1.0.1', prefixlen: 24, label }] },
  ];
  assert.deepEqual(listOwnAddresses(links, label), ['10.202.0.1/32']);
  assert.equal(tap.test('cop0000-1'), false);
});

test('only entries of the service are removed from a directory, and the directory only when it is empty', async () => {
  for (const name of ['control', 'runner/vms', 'mine']) mkdirSync(join(directory, name), { recursive: true });
  writeFileSync(join(directory, 'runner/vms/file'), '');
  const report = new RemovalReport();
  await removeEntries(directory, DATA_ENTRIES, report);
  assert.deepEqual(report.removed, [join(directory, 'control'), join(directory, 'runner')]);
  assert.deepEqual(report.left, [`${directory}: holds mine`]);
  rmSync(join(directory, 'mine'), { recursive: true });
  await removeEntries(directory, DATA_ENTRIES, report);
  assert.ok(!existsSync(directory));
});

test('a symbolic link in place of a directory is not followed', async () => {
  const target = join(directory, 'target');
  mkdirSync(join(target, 'runner'), { recursive: true });
  symlinkSync(target, join(directory, 'link'));
  const report = new RemovalReport();
  await removeEntries(join(directory, 'link'), DATA_ENTRIES, report);
  assert.ok(existsSync(join(target, 'runner')));
  assert.equal(report.left.length, 1);
});

test('the escapes of proc(5) in mount points are decoded', () => {
  const line = String.raw`36 35 98:0 / /srv/my\040disk rw,noatime - ext3 /dev/root rw`;
  assert.deepEqual(listMountPoints(`${line}\n`), ['/srv/my disk']);
});

test('control groups of the installation are removed at any depth, and no others', async () => {
  for (const name of ['cpu/a/coppice_00ff/vm1', 'memory/coppice_00ff_service', 'cpu/coppice_1111/vm1'])
    mkdirSync(join(directory, name), { recursive: true });
  const report = new RemovalReport();
  await removeCgroups('00ff', report, directory);
  assert.equal(report.removed.length, 2, report.format());
  assert.ok(existsSync(join(directory, 'cpu/a')));
  assert.ok(existsSync(join(directory, 'cpu/coppice_1111/vm1')));
});

test("set-up did not make an account with a home, a shell or a person's user id", () => {
  assert.ok(isMadeBySetUp('coppice:x:998:998::/nonexistent:/usr/sbin/nologin\n'));
  assert.ok(!isMadeBySetUp('coppice:x:998:998::/home/coppice:/usr/sbin/nologin'));
  assert.ok(!isMadeBySetUp('coppice:x:998:998::/nonexistent:/bin/bash'));
  assert.ok(!isMadeBySetUp('coppice:x:1001:1001::/nonexistent:/usr/sbin/nologin'));
});

test('other installations are listed while they have data, and one is removed from the list without the others', async () => {
  const list = join(directory, 'installations');
  const own = join(directory, 'own');
  const other = join(directory, 'other');
  const gone = join(directory, 'gone');
  mkdirSync(list);
  for (const place of [own, other, gone]) {
    mkdirSync(join(place, 'runner'), { recursive: true });
    symlinkSync(place, join(list, networkSlug(place)));
  }
  rmSync(gone, { recursive: true });
  writeFileSync(join(list, 'note'), '');
  assert.deepEqual(listOthers(own, list), [other]);
  const report = new RemovalReport();
  await forgetInstallation(own, report, list);
  await forgetInstallation(own, report, list);
  assert.deepEqual(report.removed, [join(list, networkSlug(own))]);
  assert.deepEqual(listOthers(own, list), [other]);
  assert.deepEqual(listOthers(own, join(directory, 'absent')), []);
});

test('the list is removed with the last installation', async () => {
  const list = join(directory, 'installations');
  mkdirSync(list);
  symlinkSync(join(directory, 'own'), join(list, networkSlug(join(directory, 'own'))));
  await forgetInstallation(join(directory, 'own'), new RemovalReport(), list);
  assert.ok(!existsSync(list));
});

test('the report lists what was left, and says when nothing was removed', () => {
  const report = new RemovalReport();
  report.leave('packages');
  assert.equal(report.format(), 'nothing was there to remove\nleft:\n  packages\n');
});

test('a purge removes every part that set-up builds', () => {
  const directory = join(REPOSITORY, 'scripts', 'setup');
  const sources = readdirSync(directory, { recursive: true, encoding: 'utf8' }).filter(
    (name) => name.endsWith('.mjs') && !name.endsWith('.test.mjs'),
  );
  const named = sources.flatMap((name) =>
    [...readFileSync(join(directory, name), 'utf8').matchAll(/\bkind: '([a-z-]+)'/gu)].map(
      ([, kind]) => kind,
    ),
  );
  const kinds = [...named, ...GO_PROGRAMS];
  assert.ok(kinds.length >= 10, `only ${kinds.join(', ')}`);
  const unknown = kinds.filter((kind) => kind !== undefined && !ASSETS_ENTRIES.includes(kind));
  assert.deepEqual(unknown, []);
});
