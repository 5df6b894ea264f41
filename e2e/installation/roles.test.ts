/** The units of single roles: each has only the rights that it needs, and the removal finds them all. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { Coppice } from '../../packages/sdk/src/index.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { unitPath } from '../../scripts/service/unit.mjs';
import { ManagedService } from '../fixtures/service/managed-service.ts';
import { logEnd } from '../fixtures/service/log-end.ts';
import { listPids, readCommandLine } from '../fixtures/host/processes.ts';

const ACCOUNT = process.env['COPPICE_USER'] ?? 'coppice';
const IMAGE = { image: 'coppice/base:1', memMiB: 256, timeout: 0 };
const NONE = '0000000000000000';

function statusOf(pid: number | undefined, field: string): string {
  const status = readFileSync(`/proc/${pid ?? 0}/status`, 'latin1');
  return new RegExp(`^${field}:\\s+(\\S+)`, 'mu').exec(status)?.[1] ?? '';
}

describe('control and runner as services of their own', () => {
  let service: ManagedService;
  let settings: Record<string, string>;
  before(() => {
    service = ManagedService.create('roles');
    settings = {
      COPPICE_DATA_DIR: service.dataDir,
      COPPICE_ASSETS_DIR: service.assetsDir,
      COPPICE_LISTEN: '127.0.0.1:0',
      COPPICE_WARM_POOL: '0',
    };
  });
  after(() => service[Symbol.asyncDispose]());

  it('a runner gets no secret of controls, and says which settings it does not keep', () => {
    const secrets = { DATABASE_URL: 'postgres://nowhere', COPPICE_BOOTSTRAP_KEY: 'cop_live_us_x' };
    const said = service.runScript('install-service.mjs', ['--role', 'runner'], { ...settings, ...secrets });
    assert.match(said, /^not written, because a runner does not need it: DATABASE_URL$/mu);
    const written = readFileSync(service.configurationPath, 'utf8');
    assert.doesNotMatch(written, /^(?:DATABASE_URL|COPPICE_BOOTSTRAP_)/mu);
    assert.match(written, /systemctl restart coppice-runner /u);
  });

  it('a control may be added; the service of both roles is refused with the way to replace them', () => {
    service.runScript('install-service.mjs', ['--role', 'control'], settings);
    assert.ok(existsSync(unitPath(service.root, 'control')));
    assert.throws(
      () => service.runScript('install-service.mjs', [], settings),
      /coppice-control\.service is installed, .*systemctl disable --now coppice-control\.service/su,
    );
    assert.ok(!existsSync(unitPath(service.root, 'all')));
  });

  it('both run with the capabilities of their units: control ends with none, and a sandbox runs', async () => {
    const runner = service.startUnit('runner');
    const control = await service.start('control');
    const account = execFileSync('id', ['-u', ACCOUNT], { encoding: 'utf8' }).trim();
    assert.equal(statusOf(control.pid, 'Uid'), account);
    assert.deepEqual(
      ['CapEff', 'CapPrm'].map((field) => statusOf(control.pid, field)),
      [NONE, NONE],
    );
    assert.equal(statusOf(runner.pid, 'Uid'), '0');
    await pollUntil({ step: 'health', timeoutMs: 120_000, intervalMs: 50 }, async () => {
      assert.equal(runner.exitCode, null, logEnd(service.output));
      return (await fetch(`${service.address}/healthz`)).ok ? true : undefined;
    });
    const [, path] = /^ {2}(\S+first-api-key)$/mu.exec(service.output) ?? [];
    const apiKey = readFileSync(path ?? '', 'utf8').trim();
    const client = new Coppice({ baseUrl: service.address, apiKey });
    const sandbox = await client.sandboxes.create(IMAGE);
    assert.equal((await sandbox.exec('echo here')).stdout, 'here\n');
    assert.ok(!/cop_live_|inv_/u.test(service.output), 'the log gets no key and no invitation');
  });

  it('the removal ends both services and the sandbox, and removes both units', () => {
    const said = service.runScript('uninstall.mjs', ['--purge']);
    assert.match(said, /^ {2}the running service \(processes \d+, \d+\)$/mu);
    assert.match(said, /^ {2}1 running virtual machine$/mu);
    for (const role of ['control', 'runner'] as const) assert.ok(!existsSync(unitPath(service.root, role)));
    const left = listPids().filter((pid) => readCommandLine(pid).includes(service.root));
    assert.deepEqual(left, []);
    assert.ok(!existsSync(service.configurationPath));
  });
});
