import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Api } from '../fixtures/api/api.ts';
import { shared } from '../fixtures/service/shared.ts';

const TOLERANCE_MS = 1000;

/** Waits until the sandbox has ended without asking the sandbox itself (which would restart its timer). */
async function endedAfter(api: Api, id: string, sinceMs: number, limitMs: number): Promise<number> {
  for (;;) {
    const listed = await api.call('GET', '/v1/runs');
    const active = (listed.body as unknown as { id: string }[]).some((record) => record.id === id);
    const elapsedMs = performance.now() - sinceMs;
    if (!active) return elapsedMs;
    assert.ok(elapsedMs < limitMs, `still active after ${Math.round(elapsedMs)} ms`);
    await delay(20);
  }
}

function assertNear(elapsedMs: number, expectedMs: number): void {
  assert.ok(
    Math.abs(elapsedMs - expectedMs) <= TOLERANCE_MS,
    `ended after ${Math.round(elapsedMs)} ms, expected ${expectedMs}`,
  );
}

test('an idle sandbox is destroyed at its idle timeout', async () => {
  const { api } = await shared();
  const { id } = await api.create({ image: 'coppice/base:1', mem_mib: 256, timeout: 3 });
  assertNear(await endedAfter(api, id, performance.now(), 10_000), 3000);
  const record = await api.get(id);
  assert.equal(record['status'], 'destroyed');
});

test('a running exec keeps a sandbox alive, and its end restarts the timer', async () => {
  const { api } = await shared();
  const { id } = await api.create({ image: 'coppice/base:1', mem_mib: 256, timeout: 2 });
  assert.equal((await api.exec(id, 'sleep 5; echo through')).stdout, 'through\n');
  assertNear(await endedAfter(api, id, performance.now(), 10_000), 2000);
});

test('a PATCH restarts the idle timer and sets it; 0 disables it', async () => {
  const { api } = await shared();
  const { id } = await api.create({ image: 'coppice/base:1', mem_mib: 256, timeout: 3 });
  await delay(2000);
  const restarted = await api.call('PATCH', `/v1/runs/${id}`, { body: {} });
  assert.deepEqual([restarted.status, restarted.body['timeout']], [200, 3]);
  await delay(2000);
  const disabled = await api.call('PATCH', `/v1/runs/${id}`, { body: { timeout: 0 } });
  assert.deepEqual([disabled.body['status'], disabled.body['timeout']], ['running', 0]);
  await delay(4500);
  assert.equal((await api.exec(id, 'echo alive')).stdout, 'alive\n');
  await api.call('PATCH', `/v1/runs/${id}`, { body: { timeout: 1 } });
  assertNear(await endedAfter(api, id, performance.now(), 10_000), 1000);
});
