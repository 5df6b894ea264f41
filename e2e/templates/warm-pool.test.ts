import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Api } from '../fixtures/api/api.ts';
import { Holds } from '../fixtures/faults/holds.ts';
import { hostResources } from '../fixtures/host/leaks.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';

const IMAGE = { image: 'coppice/base:1', mem_mib: 256 };

interface Created {
  vm: string;
  warm: boolean;
}

describe('warm VMs', () => {
  const holds = new Holds();
  let service: Service;
  let api: Api;
  before(async () => {
    const env = { COPPICE_WARM_POOL: '1', COPPICE_FAULT_DIR: holds.directory };
    service = await startPrepared({ instance: 1, env });
    api = new Api(service);
  });
  after(async () => {
    holds.releaseAll();
    await service[Symbol.asyncDispose]();
    holds[Symbol.dispose]();
  });
  /** Parses the runner's log line of the create. */
  const createdFrom = (id: string): Created | undefined => {
    const line = service.output
      .split('\n')
      .find((text) => text.includes('"VM created"') && text.includes(id));
    return line === undefined ? undefined : (JSON.parse(line) as Created);
  };
  /** Number of warm VMs that the pool had reported at the last call of `nextIsWarm`, which waits for one more. */
  let seen = 0;
  const nextIsWarm = async (): Promise<void> => {
    const reported = () => service.output.split('"VM kept warm"').length - 1;
    await service.waitFor('a warm VM', 30_000, () => reported() > seen);
    seen = reported();
  };

  it('serve a create with their own identity and root', async () => {
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

  /** Starts a create with a warm VM that is killed before the create has taken it over. */
  const createFromDying = async <T>(meanwhile: () => Promise<T>) => {
    await nextIsWarm();
    const [pid = 0] = service.vmPids();
    using hold = holds.hold('create.resume');
    const create = api.call('POST', '/v1/runs', { body: IMAGE });
    await hold.reached();
    process.kill(pid, 'SIGKILL');
    await service.waitFor('the warm VM to end', 5000, () => !service.vmPids().includes(pid));
    const other = meanwhile();
    hold.release();
    return { answer: await create, other: await other };
  };

  it('are replaced by a new VM when they have died, and the create succeeds', async () => {
    const { answer } = await createFromDying(async () => undefined);
    assert.equal(answer.status, 201, answer.text);
    const id = String(answer.body['id']);
    await service.waitFor('the log', 5000, () => createdFrom(id) !== undefined);
    assert.equal(createdFrom(id)?.warm, false);
    assert.equal((await api.exec(id, 'hostname')).stdout, `${id}\n`);
    await api.destroy(id);
  });

  it('are not replaced for a sandbox that is destroyed meanwhile', async () => {
    const destroyCreating = async () => {
      const { body } = await api.call('GET', '/v1/runs?status=creating');
      const [creating] = body as unknown as { id: string }[];
      return api.destroy(creating?.id ?? 'none');
    };
    const { answer, other } = await createFromDying(destroyCreating);
    assert.deepEqual([answer.status, other.status], [409, 200], answer.text + other.text);
    // Only the next VM of the pool exists.
    await nextIsWarm();
    assert.equal(service.vmPids().length, 1);
  });

  it('are not sandboxes: no list shows them, and none is left when the service stops', async () => {
    assert.equal((await api.call('GET', '/v1/runs')).text, '[]');
    await service.stop();
    assert.deepEqual(hostResources(service).qemuPids, []);
  });

  it('are removed by the next start after a crash', async () => {
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
