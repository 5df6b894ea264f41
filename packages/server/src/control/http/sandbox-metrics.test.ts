/** Usage of single sandboxes, through the real API, as a fake runner measures it. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { SandboxMetrics } from '@coppice/contract';
import { GUEST_METRICS, VM_NOW, VM_POINT } from '../testing/fakes/fake-metrics.ts';
import { answer } from '../testing/fakes/fake-answers.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
let id = '';
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(async () => {
  const { metrics } = harness.runner;
  metrics.vm = { now: VM_NOW, series: [VM_POINT] };
  metrics.onGuest = (stream) => answer(stream, 200, GUEST_METRICS);
  ({ id } = await harness.create());
});

const measure = (query = '', apiKey?: string) =>
  harness.call('GET', `/v1/runs/${id}/metrics${query}`, apiKey === undefined ? {} : { apiKey });

test('a running sandbox has numbers of the host, and apart from them those of the guest', async () => {
  const { status, body } = await measure();
  assert.equal(status, 200);
  assert.deepEqual(SandboxMetrics.parse(body), body);
  assert.deepEqual(body, {
    now: {
      at: '2026-11-26T12:00:00.000Z',
      cpu: { used_seconds: 12.345, utilization: 0.25 },
      memory: { host_bytes: 100_000_000, size_bytes: 2 ** 30 },
      disk: { used_bytes: 30_000_000, size_bytes: 2 ** 32, read_bytes: 11, written_bytes: 22 },
      workspace: null,
      network: { received_bytes: 1, sent_bytes: 2, received_packets: 3, sent_packets: 4 },
      guest_reported: {
        memory_total_bytes: 1_000_000_000,
        memory_available_bytes: 800_000_000,
        disk_total_bytes: 4_000_000_000,
        disk_used_bytes: 50_000_000,
        load1: 0.75,
        processes: 3,
      },
    },
    series: [
      {
        at: '2026-11-26T12:00:00.000Z',
        duration_seconds: 10.001,
        cpu_utilization: 0.5,
        memory_bytes: 99,
        disk_used_bytes: 88,
        disk_read_bytes: 7,
        disk_written_bytes: 6,
        network_received_bytes: 5,
        network_sent_bytes: 4,
        network_received_packets: 3,
        network_sent_packets: 2,
      },
    ],
    step_seconds: 10,
  });
});

test('since and step reach the runner', async () => {
  const { body } = await measure('?since=2026-11-26T10:00:00%2B01:00&step=60');
  assert.equal(body.step_seconds, 60);
  assert.deepEqual(harness.runner.metrics.queries.at(-1), {
    since_ms: Date.UTC(2026, 10, 26, 9),
    step_s: 60,
  });
  assert.equal((await measure('?since=1926-11-26T10:00:00Z')).status, 200);
});

test('a wrong query is refused with the name of its field', async () => {
  const wrong = [
    ['step', 'step=0'],
    ['step', 'step=15'],
    ['step', 'step=3610'],
    ['step', 'step=-10'],
    ['step', 'step=1e1'],
    ['step', 'step='],
    ['since', 'since=yesterday'],
    ['since', 'since=1795719841477'],
    ['steps', 'steps=10'],
  ];
  for (const [field, query] of wrong) {
    const { status, body } = await measure(`?${query}`);
    assert.deepEqual([status, body.error.code], [400, 'invalid_request'], query);
    assert.match(body.error.message, new RegExp(`\\b${field}\\b`, 'u'), query);
  }
});

test('another organization, an unknown id and no key get nothing', async () => {
  const other = await harness.addOrganization();
  assert.equal((await measure('', other)).status, 404);
  assert.equal((await harness.call('GET', `/v1/runs/run${'0'.repeat(20)}/metrics`)).status, 404);
  assert.equal((await harness.call('GET', `/v1/runs/${id}/metrics`, { apiKey: null })).status, 401);
});

test('a sandbox that has ended is in the wrong state', async () => {
  await harness.call('DELETE', `/v1/runs/${id}`);
  const { status, body } = await measure();
  assert.deepEqual([status, body.error.code], [409, 'invalid_state']);
  assert.match(body.error.message, /destroyed/u);
});

test('a hibernated sandbox answers with its last hour, without being resumed', async () => {
  await harness.call('PATCH', `/v1/runs/${id}`, { body: {} });
  await harness.call('POST', `/v1/runs/${id}/hibernate`);
  assert.deepEqual((await measure()).body, { now: null, series: [], step_seconds: 10 });
  harness.runner.metrics.left.add(id);
  const { body } = await measure();
  assert.deepEqual([body.now, body.series.length], [null, 1]);
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.status, 'hibernated');
});

test('a sandbox with auto_hibernate is not resumed either', async () => {
  ({ id } = await harness.create({ auto_hibernate: true }));
  await harness.call('POST', `/v1/runs/${id}/hibernate`);
  assert.equal((await measure()).status, 200);
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.status, 'hibernated');
});

test('measuring does not keep a sandbox alive', async () => {
  ({ id } = await harness.create({ timeout: 1 }));
  await waitFor('the end of a sandbox that is only measured', async () => (await measure()).status === 409);
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.status_reason, 'idle_timeout');
});

test('a guest that lies out of bounds, or says nothing, has reported nothing', async () => {
  const reports: unknown[] = [
    null,
    { ...GUEST_METRICS, processes: -1 },
    { ...GUEST_METRICS, load1: 'high' },
    { ...GUEST_METRICS, mem_total_bytes: 1e300 },
    { ...GUEST_METRICS, padding: 'x'.repeat(5000) },
  ];
  for (const report of reports) {
    harness.runner.metrics.onGuest = (stream) => answer(stream, 200, report);
    const { status, body } = await measure();
    assert.deepEqual([status, body.now.guest_reported, body.now.cpu.used_seconds], [200, null, 12.345]);
  }
  harness.runner.metrics.onGuest = () => undefined;
  const startedAt = performance.now();
  assert.equal((await measure()).body.now.guest_reported, null);
  assert.ok(performance.now() - startedAt < 8000);
});

test('measurements that violate the protocol of the runner are not passed on', async () => {
  for (const vm of [
    { now: { ...VM_NOW, cpu_ms: -1 }, series: [] },
    { now: null },
    { now: null, series: Array(361).fill(VM_POINT) },
  ]) {
    harness.runner.metrics.vm = vm;
    assert.equal((await measure()).status, 500);
  }
});
