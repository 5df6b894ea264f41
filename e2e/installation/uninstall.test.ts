import assert from 'node:assert/strict';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Coppice } from '../../packages/sdk/src/index.ts';
import { networkSlug } from '../../packages/server/src/config/default-paths.mjs';
import { hostBootId } from '../../packages/server/src/runner/host/host-process.ts';
import { logEnd } from '../fixtures/service/log-end.ts';
import { ManagedService } from '../fixtures/service/managed-service.ts';
import { listPids, listQemus, readCommandLine } from '../fixtures/host/processes.ts';

const SETTINGS = {
  COPPICE_LISTEN: '127.0.0.1:0',
  COPPICE_WARM_POOL: '0',
};
const IMAGE = { image: 'coppice/base:1', memMiB: 256, timeout: 0 };

/** Lists everything of one installation in the host's network. */
function networkTraces(slug: string): string[] {
  const run = (command: string, args: string[]): string =>
    execFileSync(command, args, { encoding: 'utf8', timeout: 30_000 });
  return [
    ...readdirSync('/sys/class/net').filter((name) => name.startsWith(`cop${slug}-`)),
    ...run('nft', ['list', 'tables'])
      .split('\n')
      .filter((line) => line.includes(slug)),
    ...run('ip', ['-o', 'address', 'show', 'dev', 'lo'])
      .split('\n')
      .filter((line) => line.includes(slug)),
  ];
}

function loopbackAddresses(): string[] {
  const text = execFileSync('ip', ['-o', 'address', 'show', 'dev', 'lo'], {
    encoding: 'utf8',
    timeout: 30_000,
  });
  return text.split('\n').filter((line) => line.includes(' 127.'));
}

function findProcesses(text: string): number[] {
  return listPids().filter((pid) => readCommandLine(pid).includes(text));
}

describe('an installation as a service, and its removal', () => {
  let service: ManagedService;
  let slug: string;
  let bystander: ChildProcess;
  before(() => {
    service = ManagedService.create();
    slug = networkSlug(service.dataDir);
    bystander = spawn('sleep', ['600'], { stdio: 'ignore' });
  });
  after(async () => {
    bystander.kill('SIGKILL');
    await service[Symbol.asyncDispose]();
  });

  it('installs a unit that names this checkout, and a configuration that other users cannot read', () => {
    const said = service.runScript('install-service.mjs', [], {
      ...SETTINGS,
      COPPICE_DATA_DIR: service.dataDir,
      COPPICE_ASSETS_DIR: service.assetsDir,
    });
    assert.equal(statSync(service.configurationPath).mode & 0o777, 0o640);
    const key = /cop_live_us_[A-Za-z0-9]{40}/u.exec(said)?.[0] ?? 'none';
    assert.ok(readFileSync(service.configurationPath, 'utf8').includes(key), said);
    assert.doesNotMatch(readFileSync(service.unitPath, 'utf8'), /^[^#]*@\w+@/mu);
  });

  it('a second run of the installation keeps the configuration', () => {
    const before = readFileSync(service.configurationPath, 'utf8');
    assert.match(service.runScript('install-service.mjs', []), /kept .*coppice\.env/u);
    assert.equal(readFileSync(service.configurationPath, 'utf8'), before);
  });

  it('the command of the unit runs sandboxes with the settings and the key of the configuration', async () => {
    await service.start();
    const apiKey = /COPPICE_BOOTSTRAP_KEY=(\S+)/u.exec(readFileSync(service.configurationPath, 'utf8'))?.[1];
    const client = new Coppice({ baseUrl: service.address, apiKey: apiKey ?? '' });
    const sandbox = await client.sandboxes.create(IMAGE);
    assert.equal((await sandbox.exec('echo here')).stdout, 'here\n');
    assert.ok(!/cop_live_|inv_/u.test(service.output), 'the journal gets no key and no invitation');
    assert.ok(networkTraces(slug).length >= 3, String(networkTraces(slug)));
  });

  it('removing another installation does not affect unit, configuration, service and sandboxes', () => {
    const other = {
      COPPICE_DATA_DIR: join(service.root, 'other'),
      COPPICE_ASSETS_DIR: join(service.root, 'other-assets'),
    };
    const vms = listQemus(service.runDir);
    assert.equal(vms.length, 1);
    for (const settings of [other, { ...other, COPPICE_RUN_DIR: service.runDir }]) {
      const said = service.runScript('uninstall.mjs', ['--purge'], settings);
      assert.match(said, /^nothing was there to remove$/mu);
      assert.ok(
        said.includes(`${service.unitPath}: belongs to the installation in ${service.dataDir}`),
        said,
      );
      assert.ok(said.includes(`${service.configurationPath}: belongs to the installation`), said);
      assert.equal(said.includes(`${service.runDir}: another service uses it`), settings !== other, said);
    }
    assert.deepEqual(
      [service.unitPath, service.configurationPath, service.runDir].map((path) => existsSync(path)),
      [true, true, true],
    );
    assert.equal(service.exitCode, null);
    assert.deepEqual(listQemus(service.runDir), vms);
    assert.ok(networkTraces(slug).length >= 3);
  });

  it('without --purge it ends service and sandboxes and keeps the data', () => {
    // Not part of the service: another file in its directory, and a record whose pid now belongs to another process.
    writeFileSync(join(service.dataDir, 'notes.txt'), 'mine');
    const decoy = join(service.dataDir, 'runner', 'vms', 'decoy');
    mkdirSync(decoy, { recursive: true });
    const stale = { pid: bystander.pid, startTicks: 1 };
    writeFileSync(join(decoy, 'vm.json'), JSON.stringify({ process: stale, host_boot_id: hostBootId() }));
    const loopback = loopbackAddresses();

    const said = service.runScript('uninstall.mjs', []);
    assert.match(said, /^ {2}the running service/mu);
    assert.match(said, /^ {2}1 running virtual machine$/mu);
    assert.equal(service.exitCode ?? 0, 0, logEnd(service.output));
    assert.deepEqual(findProcesses(service.root), []);
    assert.deepEqual(findProcesses(service.runDir), []);
    assert.deepEqual(networkTraces(slug), []);
    assert.deepEqual([existsSync(service.runDir), existsSync(service.unitPath)], [false, false]);
    assert.ok(existsSync(join(service.dataDir, 'control', 'postgres')), 'the database is kept');
    assert.match(said, new RegExp(`${service.dataDir} \\(kept; .*--purge`, 'u'));
    assert.match(said, /apt-get remove .*; the kept database needs PostgreSQL \d+$/mu);
    assert.deepEqual(loopbackAddresses(), loopback);
    assert.equal(bystander.exitCode ?? bystander.signalCode, null);
  });

  it('with --purge data, assets and configuration are removed, and foreign files stay', () => {
    writeFileSync(join(service.assetsDir, 'foreign'), 'mine');
    const said = service.runScript('uninstall.mjs', ['--purge']);
    assert.deepEqual(readdirSync(service.dataDir).toSorted(), ['assets', 'notes.txt']);
    assert.deepEqual(readdirSync(service.assetsDir), ['foreign']);
    assert.ok(!existsSync(service.configurationPath));
    assert.match(said, /assets: holds foreign$/mu);
    assert.doesNotMatch(said, /the kept database/u);
    assert.equal(bystander.exitCode ?? bystander.signalCode, null);
  });

  it('a repeated removal finds nothing to remove, and does no harm', () => {
    const said = service.runScript('uninstall.mjs', ['--purge'], {
      COPPICE_DATA_DIR: service.dataDir,
      COPPICE_ASSETS_DIR: service.assetsDir,
    });
    assert.match(said, /^nothing was there to remove$/mu);
    assert.ok(existsSync(join(service.dataDir, 'notes.txt')));
  });
});
