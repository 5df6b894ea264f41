import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Api } from './fixtures/api.ts';
import { hostResources } from './fixtures/leaks.ts';
import { Service } from './fixtures/service.ts';

const IMAGE = { image: 'coppice/base:1', mem_mib: 256 };

interface Created {
  vm: string;
  warm: boolean;
}

describe('VMs kept warm', () => {
  let service: Service;
  let api: Api;
  before(async () => {
    service = await Service.start({ instance: 1, env: { COPPICE_WARM_POOL: '1' } });
    api = new Api(service);
  });
  after(async () => {
    await service[Symbol.asyncDispose]();
  });
  /** What the runner logged of the create. */
  const createdFrom = (id: string): Created | undefined => {
    const line = service.output
      .split('\n')
      .find((text) => text.includes('"VM created"') && text.includes(id));
    return line === undefined ? undefined : (JSON.parse(line) as Created);
  };
  /** Waits for the pool to report one more VM than it had when it was last asked. */
  let seen = 0;
  const nextIsWarm = async (): Promise<void> => {
    const reported = () => service.output.split('"VM kept warm"').length - 1;
    await service.waitFor('a warm VM', 30_000, () => reported() > seen);
    seen = reported();
  };

  it('serve a create with an identity and a root of its own', async () => {
    const cold = await api.create(IMAGE);
    await api.exec(cold.id, 'echo cold > /workspace/mark');
    const coldSays = await api.exec(cold.id, 'hostname; cat /etc/machine-id /proc/sys/kernel/random/uuid');
    await api.destroy(cold.id);
    await nextIsWarm();
    const warm = await api.create(IMAGE);
    await service.waitFor('the log', 5000, () => createdFrom(warm.id) !== undefined);
    assert.equal(createdFrom(warm.id)?.warm, true);
    const warmSays = await api.exec(warm.id, 'hostname; cat /etc/machine-id /proc/sys/kernel/random/uuid');
    assert.equal(warmSays.stdout.split('\n')[0], warm.id);
    const same = warmSays.stdout
      .split('\n')
      .filter((line, at) => line !== '' && line === coldSays.stdout.split('\n')[at]);
    assert.deepEqual(same, []);
    assert.equal(
      (await api.exec(warm.id, 'ls -A /workspace; date +%Y')).stdout,
      `${new Date().getUTCFullYear()}\n`,
    );
    await api.destroy(warm.id);
  });

  it('are not sandboxes: no list shows them, and none is left when the service stops', async () => {
    await nextIsWarm();
    assert.equal((await api.call('GET', '/v1/runs')).text, '[]');
    await service.stop();
    assert.deepEqual(hostResources(service).qemuPids, []);
  });

  it('are taken away by the next start after a crash', async () => {
    await service.launch();
    await api.destroy((await api.create(IMAGE)).id);
    await nextIsWarm();
    await service.crash();
    assert.equal(service.vmPids().length, 1);
    await service.launch();
    assert.deepEqual(hostResources(service).qemuPids, []);
    assert.deepEqual(hostResources(service).vmDirectories, []);
  });
});
