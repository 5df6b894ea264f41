/** Requests beyond the capacity of the machine: the service refuses them, stays quick, and leaks nothing. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Api, type Answer } from '../fixtures/api/api.ts';
import { assertResources, hostResources } from '../fixtures/host/leaks.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';

const IMAGE = { image: 'coppice/base:1', mem_mib: 256, vcpus: 1, timeout: 0 };
/** As a multiple of the cores: far fewer sandboxes fit than are requested. */
const CPU_OVERCOMMIT = 6;
const CREATES = 100;
/** The creates take some seconds, in which each path answers some 60 times: too few for a p99. */
const P95_LIMIT_MS = 250;
/** Limit for the slowest answer, as a multiple of the other limit. */
const WORST_FACTOR = 4;
const PROBE_INTERVAL_MS = 25;
const PROBED = ['/healthz', '/v1/runs'];
const IDLE_PROBE_MS = 3000;
/** Factor by which answers may slow down on a machine with other load. */
const BUSY_FACTOR = 5;

/** Sends requests until aborted. Returns the duration of each, or throws if one failed. */
async function probe(api: Api, path: string, signal: AbortSignal): Promise<number[]> {
  const timesMs: number[] = [];
  while (!signal.aborted) {
    const startedAt = performance.now();
    const { status, text } = await api.call('GET', path);
    assert.equal(status, 200, text);
    timesMs.push(performance.now() - startedAt);
    await delay(PROBE_INTERVAL_MS);
  }
  return timesMs;
}

function quantile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Infinity;
}

describe('more is requested than the machine can give', () => {
  let service: Service;
  let api: Api;
  before(async () => {
    service = await startPrepared({
      instance: 1,
      env: { COPPICE_CPU_OVERCOMMIT: String(CPU_OVERCOMMIT), COPPICE_WARM_POOL: '2' },
    });
    api = new Api(service);
  });
  after(async () => {
    await service[Symbol.asyncDispose]();
  });

  it(`${CREATES} concurrent creates run or are refused, the API stays quick, and nothing is left`, async (t) => {
    const none = hostResources(service);
    await api.destroy((await api.create(IMAGE)).id);
    const idleMs = await Promise.all(
      PROBED.map(async (path) => quantile(await probe(api, path, AbortSignal.timeout(IDLE_PROBE_MS)), 0.99)),
    );
    const over = new AbortController();
    const probes = PROBED.map((path) => probe(api, path, over.signal));
    const startedAt = performance.now();
    const answers = await Promise.all(
      Array.from({ length: CREATES }, () => api.call('POST', '/v1/runs', { body: IMAGE })),
    );
    const elapsedMs = Math.round(performance.now() - startedAt);
    over.abort();
    const timesMs = await Promise.all(probes);
    const created = answers.filter(({ status }) => status === 201);
    t.diagnostic(`${created.length} created in ${elapsedMs} ms`);
    assertRunOrRefused(answers);
    assert.ok(created.length > 1, `${created.length} created`);
    for (const [index, times] of timesMs.entries()) {
      const limitMs = Math.max(P95_LIMIT_MS, BUSY_FACTOR * (idleMs[index] ?? 0));
      const [p95, worst] = [quantile(times, 0.95), quantile(times, 1)].map(Math.round);
      const text = `${PROBED[index]}: ${times.length} answers, p95 ${p95} ms, the slowest ${worst} ms`;
      t.diagnostic(text);
      assert.ok((p95 ?? Infinity) < limitMs && (worst ?? Infinity) < WORST_FACTOR * limitMs, text);
    }
    await Promise.all(created.map(({ body }) => api.exec(String(body['id']), 'true')));
    const records = (await api.call('GET', '/v1/runs?limit=200')).body as unknown as unknown[];
    assert.equal(records.length, created.length);
    const ends = await Promise.all(created.map(({ body }) => api.destroy(String(body['id']))));
    for (const end of ends) assert.equal(end.status, 200, end.text);
    const failed = (await api.call('GET', '/v1/runs?status=failed')).body as unknown as unknown[];
    assert.deepEqual(failed, []);
    // Warm VMs belong to no sandbox: stopping the service ends them.
    await service.stop();
    await assertResources(service, none);
    await service.launch();
  });

  it('refuses a request that the machine can never meet, and names its field', async () => {
    const answer = await api.call('POST', '/v1/runs', { body: { ...IMAGE, mem_mib: 262_144 } });
    assert.equal(answer.status, 400, answer.text);
    assert.match(answer.text, /mem_mib: must be at most \d+ \(MiB\) on this machine/u);
  });

  it('keeps the reservations of running VMs when the runner is restarted', async () => {
    const full = { ...IMAGE, vcpus: 8 };
    const { id } = await api.create(full);
    await service.killRole('runner');
    const refused = await api.call('POST', '/v1/runs', { body: full });
    assert.equal(refused.status, 429, refused.text);
    await api.destroy(id);
    const again = await api.create(full);
    await api.destroy(again.id);
  });
});

function assertRunOrRefused(answers: readonly Answer[]): void {
  for (const { status, text, headers } of answers) {
    if (status === 201) continue;
    assert.equal(status, 429, text);
    assert.match(text, /"code":"capacity".*vcpus: 1 needed, \d+ of \d+ are unreserved/u);
    assert.ok(Number(headers.get('retry-after')) > 0);
  }
}
