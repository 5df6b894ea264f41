/** PostgreSQL crashes while clients use both controls, and its synchronous standby takes its place. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Coppice } from '../../packages/sdk/src/index.ts';
import { Balancer } from '../fixtures/machines/balancer.ts';
import { Cluster } from '../fixtures/machines/cluster.ts';
import { Load } from '../fixtures/machines/load.ts';
import { API_KEY } from '../fixtures/service/service.ts';

const IMAGE = { image: 'coppice/base:1', memMiB: 256, timeout: 0 };

test('a standby of PostgreSQL takes over under load: nothing is lost, and only retryable errors are seen', async (t) => {
  await using cluster = await Cluster.start();
  const untilHealthy = async (): Promise<void> => {
    for (const control of cluster.controls) await cluster.untilHealthy(control);
  };
  // The start of a control needs its database.
  await untilHealthy();
  await cluster.postgres.addStandby();
  await untilHealthy();
  await using balancer = await Balancer.listen(cluster.controls.map(({ address }) => address));
  const client = new Coppice({ baseUrl: balancer.address, apiKey: API_KEY });
  const sandbox = await client.sandboxes.create(IMAGE);
  await sandbox.exec('(while :; do echo >> /root/n; sleep 0.1; done) >/dev/null 2>&1 & echo $! > /root/pid');
  const load = new Load(balancer.address);
  load.runFiles(sandbox);
  load.runLives({ image: IMAGE.image, mem_mib: IMAGE.memMiB });
  try {
    await load.untilAllSucceed();
    const crashedAt = performance.now();
    await cluster.postgres.failOver();
    const promotedAt = performance.now();
    await load.untilAllSucceed();
    const [promotedMs, servedMs] = [promotedAt, performance.now()].map((at) => Math.round(at - crashedAt));
    t.diagnostic(`promoted after ${promotedMs} ms, all clients served after ${servedMs} ms`);
  } finally {
    await load.end();
  }
  assert.deepEqual(load.faults, []);
  const { stdout } = await sandbox.exec(
    'wc -l < /root/n; sleep 1; kill -0 $(cat /root/pid) && wc -l < /root/n',
  );
  const [before = 0, now = 0] = stdout.trim().split('\n').map(Number);
  assert.ok(now > before, stdout);
  const ids = (await Array.fromAsync(client.sandboxes.list())).map(({ id }) => id);
  assert.deepEqual(ids, [sandbox.id]);
  await sandbox.destroy();
  assert.equal(
    cluster.runners.reduce((sum, { installation }) => sum + installation.vmPids().length, 0),
    0,
  );
});
