/**
 * Hosts that lack a requirement of guest networks: everything else works there, and no guest ever gets an
 * unfiltered network.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { networkSlug } from '../../packages/server/src/config/default-paths.mjs';
import { Api } from '../fixtures/api/api.ts';
import { makeOrdinaryUser, withoutTun, type OrdinaryUser } from '../fixtures/service/launchers.ts';
import { assertResources } from '../fixtures/host/leaks.ts';
import { Service } from '../fixtures/service/service.ts';

const INSTANCE = 7;
const UID = 1_990_007;
const SHAPE = { image: 'coppice/base:1', mem_mib: 256, disk_mib: 512, timeout: 0 };
const NOTHING = { qemuPids: [], vmDirectories: [], socketDirectories: [], tapsInUse: 0, cgroups: [] };

function uidOf(pid: number): number {
  return Number(/^Uid:\s+(\d+)/mu.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]);
}

/** Lists everything of this instance in the host's network. */
function networkTraces(service: Service): string[] {
  const slug = networkSlug(service.dataDir);
  const interfaces = readdirSync('/sys/class/net').filter((name) => name.startsWith(`cop${slug}`));
  const tables = execFileSync('nft', ['list', 'tables'], { encoding: 'utf8', timeout: 10_000 });
  return [...interfaces, ...(tables.includes(`coppice_${slug}`) ? [`coppice_${slug}`] : [])];
}

async function assertWorks(api: Api, id: string): Promise<void> {
  const { stdout } = await api.exec(id, 'id -u; echo $(ls /sys/class/net); hostname');
  assert.equal(stdout, `0\nlo\n${id}\n`);
  const path = `/v1/runs/${id}/files`;
  const content = 'x'.repeat(100_000);
  assert.equal((await api.call('POST', `${path}/upload?path=/workspace/file`, { raw: content })).status, 200);
  assert.equal((await api.call('GET', `${path}/download?path=/workspace/file`)).text, content);
}

async function assertRulesRefused(api: Api, reason: RegExp): Promise<void> {
  const answer = await api.call('POST', '/v1/runs', { body: { ...SHAPE, network: { deny: ['0.0.0.0/0'] } } });
  assert.equal(answer.status, 400);
  const { message } = answer.body['error'] as { message: string };
  assert.match(message, /^network: no rules can be set, sandboxes on this machine have no network at all: /u);
  assert.match(message, reason);
}

describe('a service started by an ordinary user', () => {
  let user: OrdinaryUser;
  let service: Service;
  let api: Api;
  let bystander: ChildProcess;
  let id: string;
  before(async () => {
    user = makeOrdinaryUser(UID, '/var/tmp/coppice-e2e-user');
    const { home, launcher } = user;
    const env = { HOME: home, XDG_RUNTIME_DIR: '', XDG_DATA_HOME: '', COPPICE_USER: 'nobody-is-called-so' };
    const directories = {
      dataDir: join(home, '.local/share/coppice'),
      runDir: `/tmp/coppice-${UID}/coppice`,
    };
    bystander = spawn('setpriv', [`--reuid=${UID}`, '--clear-groups', 'sleep', '600'], { stdio: 'ignore' });
    service = await Service.start({ instance: INSTANCE, launcher, directories, env });
    api = new Api(service);
  });
  after(async () => {
    bystander.kill('SIGKILL');
    await service?.[Symbol.asyncDispose]();
    user[Symbol.dispose]();
  });

  it('says that sandboxes have no network and share its user, with the remedy', () => {
    assert.match(
      service.output,
      /^network: none \(the service runs as an ordinary user; run it as root\)$/mu,
    );
    assert.match(service.output, /all VMs run as the user of the service; run the service as root/u);
  });

  it('boots a sandbox without a network device, runs commands in it and transfers files', async () => {
    ({ id } = await api.create(SHAPE));
    await assertWorks(api, id);
    const pids = [service.pid, service.rolePid('control'), service.rolePid('runner'), ...service.vmPids()];
    assert.deepEqual(pids.map(uidOf), [UID, UID, UID, UID]);
  });

  it('answers a create with network rules with the reason why there can be none', () =>
    assertRulesRefused(api, /the service runs as an ordinary user; run it as root$/u));

  it('adopts its sandbox after a crash, and touches no other process of its user', async () => {
    const [vm] = service.vmPids();
    await service.crash();
    await service.launch();
    assert.deepEqual(service.vmPids(), [vm]);
    assert.equal((await api.exec(id, 'stat -c %s /workspace/file')).stdout, '100000\n');
    assert.deepEqual([bystander.exitCode, bystander.signalCode], [null, null]);
  });

  it('leaves nothing of a destroyed sandbox, and never changes the host’s network', async () => {
    assert.equal((await api.destroy(id)).status, 200);
    await assertResources(service, NOTHING);
    assert.deepEqual(networkTraces(service), []);
  });
});

describe('a service started by root on a host without TUN', () => {
  let service: Service;
  let api: Api;
  let bare: string;
  let connected: string;
  before(async () => {
    service = await Service.start({ instance: INSTANCE, launcher: withoutTun() });
    api = new Api(service);
  });
  after(() => service?.[Symbol.asyncDispose]());

  it('says what is missing, and boots a sandbox without a network under its own user id', async () => {
    assert.match(
      service.output,
      /^network: none \(no TAP can be made \(\/dev\/net\/tun: no such file or directory\); load/mu,
    );
    ({ id: bare } = await api.create(SHAPE));
    await assertWorks(api, bare);
    assert.ok(uidOf(service.vmPids()[0]!) >= 1_700_000);
    assert.deepEqual(networkTraces(service), []);
  });

  it('answers a create with network rules with the reason why there can be none', () =>
    assertRulesRefused(api, /\/dev\/net\/tun: no such file or directory/u));

  it('keeps that sandbox when the machine gains a network, and gives the next sandbox a network', async () => {
    await service.stop();
    service.launcher = undefined;
    await service.launch();
    assert.equal((await api.exec(bare, 'ls /sys/class/net')).stdout, 'lo\n');
    ({ id: connected } = await api.create(SHAPE));
    assert.equal((await api.exec(connected, 'echo $(ls /sys/class/net)')).stdout, 'eth0 lo\n');
    assert.deepEqual(new Set(service.vmPids().map(uidOf)).size, 2);
  });

  it('ends sandboxes with a network when it can no longer filter, and keeps those without', async () => {
    await service.stop();
    service.launcher = withoutTun();
    await service.launch();
    assert.match(service.output, /the VM has a network that nothing here can filter/u);
    await service.waitFor('the end of the other', 10_000, () => service.vmPids().length === 1);
    assert.equal((await api.exec(bare, 'ls /sys/class/net')).stdout, 'lo\n');
    const failed = JSON.parse((await api.call('GET', '/v1/runs?status=failed')).text) as { id: string }[];
    assert.deepEqual(
      failed.map((sandbox) => sandbox.id),
      [connected],
    );
    await api.destroy(bare);
    await assertResources(service, NOTHING);
  });
});

it('COPPICE_NETWORK=on without a network fails the start, and names the setting and the reason', async () => {
  const env = { COPPICE_NETWORK: 'on' };
  await assert.rejects(
    Service.start({ instance: INSTANCE, launcher: withoutTun(), env }),
    /coppice: COPPICE_NETWORK: is on, but sandboxes cannot have a network here: no TAP can be made/u,
  );
});
