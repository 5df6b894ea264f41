import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Api } from '../fixtures/api/api.ts';
import { assertResources, hostResources } from '../fixtures/host/leaks.ts';
import { shared } from '../fixtures/service/shared.ts';

const IMAGE = { image: 'coppice/base:1', mem_mib: 256, timeout: 0 };

async function startWithFile(api: Api): Promise<string> {
  const { id } = await api.create(IMAGE);
  await api.exec(id, 'echo kept > /workspace/file; (sleep 1000 & echo $! > /tmp/pid)');
  return id;
}

/** Fails unless the sandbox still has its file and its process, and can be destroyed and billed. */
async function assertUnharmed(api: Api, id: string): Promise<void> {
  const { stdout } = await api.exec(id, 'cat /workspace/file; kill -0 $(cat /tmp/pid) && echo alive');
  assert.equal(stdout, 'kept\nalive\n');
  const destroyed = await api.destroy(id);
  assert.ok(Number(destroyed.body['cpu_ms']) > 0, destroyed.text);
}

for (const role of ['control', 'runner'] as const) {
  test(`kill -9 of ${role}: sandboxes still answer, records are correct, nothing is leaked`, async () => {
    const { api, service } = await shared();
    const before = hostResources(service);
    const id = await startWithFile(api);
    const running = hostResources(service);
    await service.killRole(role);
    assert.equal((await api.get(id))['status'], 'running');
    await assertResources(service, running);
    await assertUnharmed(api, id);
    await assertResources(service, before);
  });
}

test('kill -9 of everything but the VMs: the next start adopts them', async () => {
  const { api, service } = await shared();
  const before = hostResources(service);
  const id = await startWithFile(api);
  await service.crash();
  await service.launch();
  await assertUnharmed(api, id);
  await assertResources(service, before);
});

test('kill -9 of the runner during creates: each sandbox is running or cleanly gone', async () => {
  const { api, service } = await shared();
  const before = hostResources(service);
  const creates = Array.from({ length: 4 }, () =>
    api.call('POST', '/v1/runs', { body: IMAGE }).catch(() => undefined),
  );
  await service.waitFor('a VM that starts', 20_000, () => service.vmPids().length > before.qemuPids.length);
  await service.killRole('runner');
  await Promise.all(creates);
  const settled = async (): Promise<Record<string, unknown>[]> =>
    (await api.call('GET', '/v1/runs')).body as unknown as Record<string, unknown>[];
  await service.waitFor('creates to settle', 60_000, async () =>
    (await settled()).every((run) => run['status'] === 'running'),
  );
  for (const run of await settled()) {
    assert.equal((await api.exec(String(run['id']), 'echo here')).stdout, 'here\n');
    await api.destroy(String(run['id']));
  }
  await assertResources(service, before);
});

test('kill -9 of control during a create: the record reaches a final state, nothing is leaked', async () => {
  const { api, service } = await shared();
  const before = hostResources(service);
  const create = api.call('POST', '/v1/runs', { body: IMAGE }).catch(() => undefined);
  await service.waitFor('a VM that starts', 20_000, () => service.vmPids().length > before.qemuPids.length);
  await service.killRole('control');
  await create;
  const active = async () => (await api.call('GET', '/v1/runs')).body as unknown as Record<string, unknown>[];
  await service.waitFor('the create to settle', 60_000, async () =>
    (await active()).every((run) => run['status'] === 'running'),
  );
  for (const run of await active()) await api.destroy(String(run['id']));
  await service.waitFor('the VM to end', 20_000, () => service.vmPids().length === before.qemuPids.length);
  await assertResources(service, before);
});

test('a sandbox whose QEMU dies is failed; one whose guest powers off is destroyed', async () => {
  const { api, service } = await shared();
  const before = hostResources(service);
  const { id: lost } = await api.create(IMAGE);
  const pid = service.vmPids().find((each) => !before.qemuPids.includes(each));
  process.kill(pid!, 'SIGKILL');
  const statusOf = async (id: string) => (await api.get(id))['status'];
  await service.waitFor('the record to fail', 5000, async () => (await statusOf(lost)) === 'failed');
  const onFailed = await api.call('POST', `/v1/runs/${lost}/exec`, { body: { command: 'true' } });
  assert.equal(onFailed.status, 409);
  assert.match(onFailed.text, /invalid_state.*failed/u);

  const { id: off } = await api.create(IMAGE);
  await api
    .call('POST', `/v1/runs/${off}/exec`, { body: { command: 'echo o > /proc/sysrq-trigger' } })
    .catch(() => undefined);
  await service.waitFor(
    'the record to be destroyed',
    10_000,
    async () => (await statusOf(off)) === 'destroyed',
  );
  assert.equal((await api.get(off))['status_reason'], 'guest_shutdown');

  const { id: panicked } = await api.create(IMAGE);
  await api
    .call('POST', `/v1/runs/${panicked}/exec`, { body: { command: 'echo c > /proc/sysrq-trigger' } })
    .catch(() => undefined);
  await service.waitFor('the record to fail', 10_000, async () => (await statusOf(panicked)) === 'failed');
  assert.equal((await api.get(panicked))['status_reason'], 'guest_panic');
  await assertResources(service, before);
});
