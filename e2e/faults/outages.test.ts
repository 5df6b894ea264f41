/**
 * Outages of processes, a change of the clock, a database shared by mistake: reported in time, and repaired without a
 * restart.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Api } from '../fixtures/api/api.ts';
import { Holds } from '../fixtures/faults/holds.ts';
import { assertConsistent } from '../fixtures/host/inventory.ts';
import { listChildren } from '../fixtures/host/processes.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';
import { kill, postmasterPid } from '../fixtures/faults/victims.ts';

const IMAGE = { image: 'coppice/base:1', mem_mib: 256, timeout: 0 };
const HOUR_MS = 3_600_000;
/** Within this time a caller must learn that a process is unavailable. */
const PATIENCE_MS = 15_000;
const MENDED_MS = 40_000;

/** Returns the postmaster and the processes that serve its connections. */
function postgresPids(service: Service): number[] {
  const postmaster = postmasterPid(service);
  return [postmaster, ...listChildren(postmaster)];
}

/** Stops the processes until the result is disposed. Ignores processes that have ended meanwhile. */
function freeze(pids: readonly number[]): Disposable {
  for (const pid of pids) process.kill(pid, 'SIGSTOP');
  return {
    [Symbol.dispose]: () => {
      for (const pid of pids) {
        try {
          process.kill(pid, 'SIGCONT');
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
        }
      }
    },
  };
}

describe('outages', { concurrency: false }, () => {
  const holds = new Holds();
  let service: Service;
  let api: Api;
  let kept = '';
  before(async () => {
    service = await startPrepared({ instance: 9, env: { COPPICE_FAULT_DIR: holds.directory } });
    api = new Api(service);
    kept = (await api.create(IMAGE)).id;
  });
  after(async () => {
    await service[Symbol.asyncDispose]();
    holds[Symbol.dispose]();
  });

  const isHealthy = async (): Promise<boolean> => (await service.health()) === 200;
  const statusOf = async (id: string): Promise<unknown> => (await api.get(id))['status'];

  /** Fails unless the answer is 503 with Retry-After, in time. */
  const assertAway = async (method: string, path: string, body?: unknown): Promise<void> => {
    const startedAt = performance.now();
    const answer = await api.call(method, path, body === undefined ? {} : { body });
    const elapsedMs = Math.round(performance.now() - startedAt);
    assert.equal(answer.status, 503, `${method} ${path}: ${answer.text}`);
    assert.ok(answer.headers.get('retry-after'), `${method} ${path} has no Retry-After`);
    assert.ok(elapsedMs < PATIENCE_MS, `${method} ${path} took ${elapsedMs} ms`);
  };

  const assertKeptLives = async (): Promise<void> => {
    assert.equal((await api.exec(kept, 'echo alive')).stdout, 'alive\n');
    await assertConsistent(api);
  };

  it('PostgreSQL does not answer: callers get 503 in time, ends wait in the spool, and everything recovers', async () => {
    const others = service.vmPids();
    const { id: lost } = await api.create(IMAGE);
    const lostPid = service.vmPids().find((pid) => !others.includes(pid))!;
    const control = service.rolePid('control');
    {
      using _frozen = freeze(postgresPids(service));
      await Promise.all([
        assertAway('GET', '/v1/runs'),
        assertAway('GET', `/v1/runs/${kept}`),
        assertAway('POST', '/v1/runs', IMAGE),
        assertAway('POST', `/v1/runs/${kept}/exec`, { command: 'true' }),
        assertAway('DELETE', `/v1/runs/${kept}`),
        assertAway('GET', '/healthz'),
      ]);
      process.kill(lostPid, 'SIGKILL');
      await assertAway('GET', '/v1/runs');
      assert.deepEqual(service.vmPids(), others);
    }
    await service.waitFor('/healthz', MENDED_MS, isHealthy);
    await service.waitFor('the end in SQL', MENDED_MS, async () => (await statusOf(lost)) === 'failed');
    await assertKeptLives();
    assert.equal(service.rolePid('control'), control);
  });

  it('PostgreSQL is killed: it comes back by itself', async () => {
    const control = service.rolePid('control');
    await kill('postgres', service);
    await service.waitFor('/healthz', MENDED_MS, isHealthy);
    await assertKeptLives();
    assert.equal(service.rolePid('control'), control);
  });

  it('the runner does not answer: records can be read, creates get 503 in time', async () => {
    {
      using _frozen = freeze([service.rolePid('runner')]);
      await Promise.all([
        assertAway('POST', '/v1/runs', IMAGE),
        (async () => assert.equal(await statusOf(kept), 'running'))(),
      ]);
    }
    await service.waitFor('/healthz', MENDED_MS, isHealthy);
    await assertKeptLives();
  });

  it('the runner is down: records can be read, creates get 503 at once', async () => {
    {
      // A stopped supervisor does not restart the runner.
      using _frozen = freeze([service.pid]);
      process.kill(service.rolePid('runner'), 'SIGKILL');
      await service.waitFor('the loss', MENDED_MS, async () => (await service.health()) === 503);
      await assertAway('POST', '/v1/runs', IMAGE);
      assert.equal(await statusOf(kept), 'running');
    }
    await service.waitFor('/healthz', MENDED_MS, isHealthy);
    await assertKeptLives();
  });

  for (const stepMs of [HOUR_MS, -HOUR_MS]) {
    it(`the clock changes by ${stepMs / HOUR_MS} h: nothing expires and the change is not billed`, async () => {
      const startedAt = performance.now();
      const { id } = await api.create({ ...IMAGE, timeout: 600, max_lifetime: 1200 });
      holds.setClock(stepMs);
      try {
        await kill('control', service);
        const shownAt = Date.now() + stepMs;
        const record = await api.get(id);
        assert.equal(record['status'], 'running');
        const leftMs = Date.parse(String(record['expires_at'])) - shownAt;
        assert.ok(leftMs > 500_000 && leftMs <= 601_000, `expires in ${leftMs} ms`);
        await delay(1000);
        assert.equal((await api.exec(id, 'echo alive')).stdout, 'alive\n');
        const { body } = await api.destroy(id);
        const elapsedMs = performance.now() - startedAt;
        const uptimeMs = Number(body['uptime_ms']);
        assert.ok(
          uptimeMs > 1000 && uptimeMs <= elapsedMs,
          `billed ${uptimeMs} of ${Math.round(elapsedMs)} ms`,
        );
      } finally {
        holds.setClock(0);
      }
      await assertKeptLives();
    });
  }

  it('a second service on the same database is refused, and the first keeps serving', async () => {
    const url = `postgresql://coppice@/coppice?host=${join(service.runDir, 'control', 'postgres')}`;
    await assert.rejects(
      startPrepared({ instance: 8, env: { DATABASE_URL: url } }),
      /another control uses this database.*DATABASE_URL/su,
    );
    await assertKeptLives();
  });

  it('the supervisor is killed and restarted at once: it takes over from the draining processes', async () => {
    const exec = api.exec(kept, 'sleep 4; echo through');
    await service.waitFor('the command', 5000, async () => {
      const { stdout } = await api.exec(kept, 'ps ax | grep -c "[s]leep 4"');
      return Number(stdout) > 0;
    });
    process.kill(service.pid, 'SIGKILL');
    const launched = service.launch();
    await exec.catch(() => undefined);
    await launched;
    await service.waitFor('/healthz', MENDED_MS, isHealthy);
    await assertKeptLives();
  });
});
