/** Requests about persistent disks that are refused. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { addOrganization } from '../fixtures/accounts/organization.ts';
import { DiskApi } from '../fixtures/disks/disk-api.ts';
import { shared } from '../fixtures/service/shared.ts';

describe('requests about persistent disks that are refused', { concurrency: false }, () => {
  let disks: DiskApi;
  before(async () => {
    disks = new DiskApi((await shared()).service);
    await disks.create('x');
  });
  after(async () => {
    assert.equal((await disks.delete('x')).status, 204);
  });

  it('names, sizes and snapshots that are not valid are refused, and the field is named', async () => {
    const refuse = async (body: Record<string, unknown>, status: number, pattern: RegExp): Promise<void> => {
      const answer = await disks.api.call('POST', '/v1/disks', { body });
      assert.equal(answer.status, status, `${JSON.stringify(body)}: ${answer.text}`);
      assert.match(answer.text, pattern);
    };
    const names = ['', 'A', 'a_b', '-a', 'a b', 'a/b', '..', 'a.b', 'é', 'a\u0000', 'a'.repeat(31), 7, null];
    for (const name of names) await refuse({ name, size_gb: 1 }, 400, /name/u);
    const sizes = [0, -1, 1.5, '1', null, 16_385, 2 ** 53, 1e308];
    for (const size_gb of sizes) await refuse({ name: 'x', size_gb }, 400, /size_gb/u);
    await refuse({ name: 'x' }, 400, /size_gb/u);
    await refuse({ name: 'x', size_gb: 1, durability: 'none' }, 400, /durability/u);
    await refuse({ name: 'x', size_gb: 1, other: 1 }, 400, /other/u);
    await refuse({ name: 'y', size_gb: 1025 }, 429, /GB/u);

    await refuse({ name: 'x', size_gb: 1 }, 409, /already_exists/u);
    const shrink = await disks.api.call('PATCH', '/v1/disks/x', { body: { size_gb: 0 } });
    assert.equal(shrink.status, 400, shrink.text);
    for (const name of ['', 'A', 'a'.repeat(31)]) {
      const answer = await disks.api.call('POST', '/v1/disks/x/snapshots', { body: { name } });
      assert.equal(answer.status, 400, answer.text);
    }
    const fork = await disks.api.call('POST', '/v1/disks/x/fork', {
      body: { name: 'y', snapshot: 'none' },
    });
    assert.equal(fork.status, 404, fork.text);
  });

  it('does not exist for another organization', async () => {
    const key = await addOrganization(disks.service);
    const ask = async (method: string, path: string, body?: unknown): Promise<void> => {
      const answer = await disks.api.call(method, path, { key, ...(body === undefined ? {} : { body }) });
      assert.equal(answer.status, 404, `${method} ${path}: ${answer.text}`);
    };
    await disks.snapshot('x', 's');
    await ask('GET', '/v1/disks/x');
    await ask('PATCH', '/v1/disks/x', { size_gb: 2 });
    await ask('DELETE', '/v1/disks/x');
    await ask('POST', '/v1/disks/x/flush');
    await ask('POST', '/v1/disks/x/snapshots', { name: 't' });
    await ask('GET', '/v1/disks/x/snapshots');
    await ask('DELETE', '/v1/disks/x/snapshots/s');
    await ask('POST', '/v1/disks/x/fork', { snapshot: 's', name: 'y' });
    await ask('POST', '/v1/runs', { image: 'coppice/base:1', disk: 'x' });
    await ask('POST', '/v1/runs', { image: 'coppice/base:1', fork_from_disk: 'x', disk_snapshot: 's' });
    const listed = await disks.api.call('GET', '/v1/disks', { key });
    assert.deepEqual(listed.body, []);
    assert.equal((await disks.get('x')).status, 'available');
  });
});
