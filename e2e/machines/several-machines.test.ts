/** Two controls and two runners: placement, forwarding, and the loss of each of them. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Coppice, type Sandbox } from '../../packages/sdk/src/index.ts';
import { layOutTar } from '../../packages/server/src/control/testing/tar-of-files.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { Cluster, type Machine } from '../fixtures/machines/cluster.ts';
import { API_KEY } from '../fixtures/service/service.ts';

const IMAGE = { image: 'coppice/base:1', memMiB: 256, timeout: 0 };
/** The lease of a killed control, and the requests that find its successor. */
const TAKEOVER_MS = 60_000;
const POLL_MS = 250;

interface Listed {
  id: string;
  state: string;
  vms: number;
}

describe('two controls and two runners', { concurrency: false }, () => {
  let cluster: Cluster;
  let one: Coppice;
  let two: Coppice;
  let sandboxes: Sandbox[];

  const clientOf = ({ address }: Machine): Coppice => new Coppice({ baseUrl: address, apiKey: API_KEY });
  const find = async (client: Coppice, id: string): Promise<Sandbox> => {
    const sandbox = await client.sandboxes.get(id);
    assert.ok(sandbox);
    return sandbox;
  };
  const list = (): Listed[] =>
    JSON.parse(cluster.controls[1].runAdmin('runner', 'list', '--json')) as Listed[];
  /** Which runner has them depends on the owners at the time of the creates. */
  const countVms = (): number =>
    cluster.runners.reduce((sum, { installation }) => sum + installation.vmPids().length, 0);

  before(async () => {
    cluster = await Cluster.start();
    [one, two] = [clientOf(cluster.controls[0]), clientOf(cluster.controls[1])];
  });
  after(() => cluster[Symbol.asyncDispose]());

  it('a control that has started later forwards creates, until it has runners of its own', async () => {
    // The room at the runners of the other control is known from its next report on.
    let refusal: unknown;
    const first = await pollUntil(
      { step: 'room elsewhere', timeoutMs: TAKEOVER_MS, intervalMs: POLL_MS },
      async () =>
        two.sandboxes.create(IMAGE).catch((error: unknown) => {
          refusal = error;
          return undefined;
        }),
    ).catch((error: unknown) => {
      throw refusal ?? error;
    });
    sandboxes = [first];
    sandboxes.push(await two.sandboxes.create(IMAGE));
    assert.equal(countVms(), 2);
  });

  it('it gets one of the runners, and the sandboxes there continue', async () => {
    for (const sandbox of sandboxes) await sandbox.exec('sleep 1000 & echo $! > /root/moved');
    await cluster.untilBalanced();
    for (const { id } of sandboxes)
      for (const client of [one, two]) {
        const sandbox = await find(client, id);
        assert.equal((await sandbox.exec('kill -0 $(cat /root/moved)')).exitCode, 0);
      }
  });

  it('commands, files and ports of each sandbox are reached through both controls', async () => {
    for (const { id } of sandboxes)
      for (const client of [one, two]) {
        const sandbox = await find(client, id);
        await sandbox.upload('/root/note', `of ${id}`);
        assert.equal((await sandbox.exec('cat /root/note')).stdout, `of ${id}`);
      }
  });

  it('the files of a build that one control has got are built with, or deleted, through the other', async () => {
    const raw = layOutTar([{ path: 'app/note', content: 'of the context' }]);
    for (const [from, to, name] of [
      [one, two, 'forth:1'],
      [two, one, 'back:1'],
    ] as const) {
      const context = await from.builds.uploadContext(raw);
      const build = await to.builds.run({
        from: IMAGE.image,
        name,
        steps: [
          { copy: { fromPath: 'app', to: '/srv/' } },
          { run: 'test "$(cat /srv/note)" = "of the context"' },
        ],
        context,
      });
      assert.equal(build.status, 'done');
      await assert.rejects(to.builds.deleteContext(context), { code: 'not_found' });
      const unused = await from.builds.uploadContext(raw);
      await to.builds.deleteContext(unused);
      await assert.rejects(from.builds.deleteContext(unused), { code: 'not_found' });
    }
  });

  it('a snapshot is restored where it was taken', async () => {
    const [sandbox] = sandboxes;
    assert.ok(sandbox);
    const snapshot = await sandbox.snapshot();
    const restored = await two.sandboxes.restore(snapshot.id);
    assert.equal((await restored.exec('cat /root/note')).stdout, `of ${sandbox.id}`);
    await restored.destroy();
    await two.snapshots.delete(snapshot.id);
  });

  it('a runner that is killed and started again still has its sandbox, with its processes', async () => {
    const [runner] = cluster.runners;
    assert.ok(runner);
    for (const sandbox of sandboxes) await sandbox.exec('sleep 1000 & echo $! > /root/pid');
    await runner.kill();
    runner.start();
    for (const sandbox of sandboxes)
      await pollUntil({ step: 'the sandbox', timeoutMs: TAKEOVER_MS, intervalMs: POLL_MS }, async () => {
        const ran = await sandbox.exec('kill -0 $(cat /root/pid)').catch(() => undefined);
        return ran?.exitCode === 0 ? true : undefined;
      });
  });

  it('when a control is killed, the other one takes the runners, and no sandbox is lost', async () => {
    const killed = cluster.controls[0];
    await killed.kill();
    for (const { id } of sandboxes)
      await pollUntil({ step: 'the takeover', timeoutMs: TAKEOVER_MS, intervalMs: POLL_MS }, async () => {
        const sandbox = await find(two, id);
        const ran = await sandbox.exec('kill -0 $(cat /root/pid)').catch(() => undefined);
        return ran?.exitCode === 0 ? true : undefined;
      });
    assert.equal(countVms(), 2);
    killed.start();
    await cluster.untilAnswers(killed);
    for (const { id } of sandboxes) {
      const sandbox = await find(one, id);
      assert.equal((await sandbox.exec('echo through the other')).stdout, 'through the other\n');
      const entries = await Array.fromAsync(sandbox.audit());
      assert.ok(entries.filter(({ event }) => event === 'exec.start').length > 3, JSON.stringify(entries));
    }
  });

  it('cordoned runners get no sandboxes, and drained ones hibernate theirs', async () => {
    const [kept, lost] = sandboxes;
    assert.ok(kept && lost);
    await kept.update({ autoHibernate: true });
    const ids = list().map(({ id }) => id);
    for (const id of ids) cluster.controls[1].runAdmin('runner', 'cordon', id);
    await pollUntil({ step: 'the refusal', timeoutMs: TAKEOVER_MS, intervalMs: POLL_MS }, async () => {
      const made = await two.sandboxes.create(IMAGE).catch(() => undefined);
      await made?.destroy();
      return made === undefined ? true : undefined;
    });
    for (const id of ids) cluster.controls[1].runAdmin('runner', 'uncordon', id);
    await lost.destroy();
    for (const id of ids)
      assert.match(cluster.controls[1].runAdmin('runner', 'drain', id, '--minutes', '2'), /has no VM/u);
    assert.equal((await find(two, kept.id)).status, 'hibernated');
    assert.equal(countVms(), 0);
  });
});
