/** smoke */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Coppice } from '../../packages/sdk/src/index.ts';
import { Cluster } from '../fixtures/machines/cluster.ts';
import { API_KEY } from '../fixtures/service/service.ts';

describe('machines in namespaces', { concurrency: false }, () => {
  let cluster: Cluster;
  before(async () => {
    const t = performance.now();
    cluster = await Cluster.start({ runners: 3, hasNetwork: true });
    console.log('started', performance.now() - t);
  });
  after(() => cluster[Symbol.asyncDispose]());
  it('serves', async () => {
    const client = new Coppice({
      baseUrl: cluster.controls[0].address,
      apiKey: API_KEY,
      allowPlainHttp: true,
    });
    try {
      let t = performance.now();
      for (let i = 0; i < 3; i += 1) {
        const sandbox = await client.sandboxes.create({ image: 'coppice/base:1', memMiB: 256, timeout: 0 });
        console.log('created', performance.now() - t);
        t = performance.now();
        assert.equal((await sandbox.exec('echo hi')).stdout, 'hi\n');
        const snapshot = await sandbox.snapshot();
        console.log('snapshot', performance.now() - t);
        t = performance.now();
        const restored = await client.sandboxes.restore(snapshot.id);
        console.log('restored', performance.now() - t);
        t = performance.now();
        await sandbox.hibernate();
        console.log('hibernated', performance.now() - t);
        t = performance.now();
        await sandbox.exec('true');
        console.log('resumed', performance.now() - t);
        t = performance.now();
        await restored.destroy();
        console.log('destroyed', performance.now() - t);
        t = performance.now();
      }
      console.log(cluster.controls[1].runAdmin('runner', 'list'));
    } catch (error) {
      for (const m of [...cluster.controls, ...cluster.runners]) console.log(m.name, m.log.slice(-1500));
      throw error;
    }
  });
});
