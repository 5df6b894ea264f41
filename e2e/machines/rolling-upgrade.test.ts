/** Every daemon of an installation is restarted, one after the other as for an upgrade, while clients use it. */
import assert from 'node:assert/strict';
import { after, before, describe, it, type TestContext } from 'node:test';
import { Coppice, type Sandbox } from '../../packages/sdk/src/index.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { Balancer } from '../fixtures/machines/balancer.ts';
import { Cluster, type Machine } from '../fixtures/machines/cluster.ts';
import { Load } from '../fixtures/machines/load.ts';
import { API_KEY } from '../fixtures/service/service.ts';

const IMAGE = { image: 'coppice/base:1', memMiB: 256, timeout: 0 };
const START_MS = 60_000;
const POLL_MS = 100;

describe('a rolling upgrade under load', { concurrency: false }, () => {
  const made = new AsyncDisposableStack();
  let cluster: Cluster;
  let client: Coppice;
  let sandboxes: Sandbox[];
  let load: Load;

  /** Stops a process as systemd does, and starts it again. */
  const restart = async (t: TestContext, machine: Machine): Promise<void> => {
    load.longestMs = 0;
    const stoppedAt = performance.now();
    assert.equal(await machine.stop(), 0);
    const startedAt = performance.now();
    machine.start();
    if (machine.role === 'control')
      await pollUntil({ step: 'the start', timeoutMs: START_MS, intervalMs: POLL_MS }, () =>
        machine.log.includes('control serves') ? true : undefined,
      );
    await load.untilAllSucceed();
    await assertCounting();
    const stopMs = Math.round(startedAt - stoppedAt);
    t.diagnostic(`stopped in ${stopMs} ms; the slowest request took ${Math.round(load.longestMs)} ms`);
    assert.deepEqual(load.faults, []);
  };

  /** Fails unless the process that counts in each sandbox is alive. */
  const assertCounting = async (): Promise<void> => {
    for (const sandbox of sandboxes) {
      const watch = 'wc -l < /root/n; sleep 1; kill -0 $(cat /root/pid) && wc -l < /root/n';
      const seen = (await sandbox.exec(watch)).stdout;
      const [before = 0, now = 0] = seen.trim().split('\n').map(Number);
      assert.ok(now > before, seen);
    }
  };

  /** Creates a sandbox at the runner without one, which the control that has it then prefers. */
  const createAtOther = async (): Promise<Sandbox> =>
    pollUntil({ step: 'both runners', timeoutMs: START_MS, intervalMs: POLL_MS }, async () => {
      for (const { address } of cluster.controls) {
        const { id } = await new Coppice({ baseUrl: address, apiKey: API_KEY }).sandboxes.create(IMAGE);
        const made = await client.sandboxes.get(id);
        assert.ok(made);
        if (cluster.runners.every(({ installation }) => installation.vmPids().length === 1)) return made;
        await made.destroy();
      }
      return undefined;
    });

  before(async () => {
    cluster = made.use(await Cluster.start());
    const balancer = made.use(await Balancer.listen(cluster.controls.map(({ address }) => address)));
    client = new Coppice({ baseUrl: balancer.address, apiKey: API_KEY });
    sandboxes = [await client.sandboxes.create(IMAGE), await createAtOther()];
    const count = 'while :; do echo >> /root/n; sleep 0.1; done';
    for (const sandbox of sandboxes) await sandbox.exec(`(${count}) >/dev/null 2>&1 & echo $! > /root/pid`);
    load = new Load(balancer.address);
    made.defer(() => load.end());
    for (const sandbox of sandboxes) {
      load.runCommands(sandbox);
      load.runFiles(sandbox);
      load.runSockets(sandbox);
      await load.followOutput(sandbox);
    }
    load.runLives({ image: IMAGE.image, mem_mib: IMAGE.memMiB });
    await load.untilAllSucceed();
  });
  after(() => made.disposeAsync());

  it('no request fails while each control is restarted', async (t) => {
    for (const control of cluster.controls) await restart(t, control);
  });

  it('no request fails while each runner is restarted', async (t) => {
    for (const runner of cluster.runners) await restart(t, runner);
  });

  it('no sandbox, process or line of output is lost, and no command has run twice', async () => {
    await load.end();
    assert.deepEqual(load.faults, []);
    await assertCounting();
    for (const sandbox of sandboxes) {
      const ran = (await sandbox.exec('cat /root/log')).stdout.trim().split('\n').map(Number);
      assert.deepEqual(
        ran,
        ran.map((_, index) => index + 1),
      );
    }
    const ids = (await Array.fromAsync(client.sandboxes.list())).map(({ id }) => id);
    assert.deepEqual(ids.toSorted(), sandboxes.map(({ id }) => id).toSorted());
    for (const sandbox of sandboxes) await sandbox.destroy();
  });
});
