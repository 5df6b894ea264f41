/** The metrics for Prometheus, through the real API. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { after, before, beforeEach, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { FRAME } from '../../lib/protocol/frames.ts';
import { RUNNER_METRICS } from '../testing/fakes/fake-metrics.ts';
import {
  API_KEY,
  startHarness,
  startHarnessWith,
  waitFor,
  type ControlHarness,
} from '../testing/control-harness.ts';
import { SocketClient } from '../testing/requests/socket-client.ts';

const TOKEN = 'scrape-me-if-you-can';
const IMAGE = 'node:22-slim';
const RUNNER = `runner="runner-${'0'.repeat(32)}"`;
const UP = `coppice_runner_up{${RUNNER}}`;

let harness: ControlHarness;
before(async () => {
  harness = await startHarnessWith({ metricsToken: TOKEN });
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(() => {
  harness.runner.metrics.runner = RUNNER_METRICS;
  harness.runner.onCreate = () => undefined;
});

async function scrape(): Promise<string> {
  const response = await harness.fetch('GET', '/metrics', { apiKey: TOKEN });
  assert.equal(response.status, 200);
  assert.equal(response.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');
  return response.text();
}

/** Returns the value of a series, which is written with its labels; 0 if there is none yet. */
function valueOf(text: string, series: string): number {
  const line = text.split('\n').find((each) => each.startsWith(`${series} `));
  return line === undefined ? 0 : Number(line.slice(series.length + 1));
}

/** Waits until a series has grown by `by`: a request is counted when its connection is free, after its answer. */
async function waitForGrowth(series: string, from: number, by = 1): Promise<void> {
  await waitFor(series, async () => valueOf(await scrape(), series) === from + by);
}

test('without a token there is no such route', async () => {
  await using closed = await startHarness();
  for (const apiKey of [null, API_KEY, TOKEN]) {
    const { status, body } = await closed.call('GET', '/metrics', { apiKey });
    assert.deepEqual([status, body.error.code], [404, 'not_found']);
  }
});

test('only the token opens the metrics', async () => {
  const wrong = [null, API_KEY, `${TOKEN}x`, TOKEN.slice(0, -1), TOKEN.toUpperCase()];
  for (const apiKey of wrong) {
    const { status, headers, body } = await harness.call('GET', '/metrics', { apiKey });
    assert.deepEqual([status, body.error.code], [401, 'unauthorized']);
    assert.equal(headers.get('www-authenticate'), 'Bearer');
  }
  for (const authorization of [`Basic ${TOKEN}`, TOKEN, 'Bearer', `Bearer ${TOKEN} ${TOKEN}`]) {
    const { status } = await harness.call('GET', '/metrics', { apiKey: null, headers: { authorization } });
    assert.equal(status, 401, authorization);
  }
  assert.match(await scrape(), /^coppice_build_info\{version="0\.0\.0-test"\} 1$/mu);
});

test('the token is no API key', async () => {
  const { status } = await harness.call('GET', '/v1/runs', { apiKey: TOKEN });
  assert.equal(status, 401);
});

test('many wrong tokens from one address are refused', async () => {
  await using guessed = await startHarnessWith({ metricsToken: TOKEN, limits: { wrongKeysPerMinute: 3 } });
  const statuses: number[] = [];
  for (let count = 0; count < 5; count += 1)
    statuses.push((await guessed.call('GET', '/metrics', { apiKey: `${TOKEN}${count}` })).status);
  assert.deepEqual(statuses, [401, 401, 401, 429, 429]);
});

test('requests are counted by route, and never by what a path or a caller names', async () => {
  const ok = 'coppice_http_requests_total{method="GET",route="/v1/runs/:id",status="200"}';
  const missing = 'coppice_http_requests_total{method="GET",route="/v1/runs/:id",status="404"}';
  const unknown = 'coppice_http_requests_total{method="GET",route="none",status="404"}';
  const first = await scrape();
  const { id } = await harness.create();
  await harness.call('GET', `/v1/runs/${id}`);
  await harness.call('GET', `/v1/runs/run${'0'.repeat(20)}`);
  await harness.call('GET', '/v1/my-secret-path');
  await waitForGrowth(ok, valueOf(first, ok));
  await waitForGrowth(missing, valueOf(first, missing));
  await waitForGrowth(unknown, valueOf(first, unknown));
  const text = await scrape();
  assert.match(text, /^coppice_http_request_duration_seconds_count\{method="POST",route="\/v1\/runs"\} \d/mu);
  for (const name of [id, 'my-secret-path', 'node:22', 'org_', API_KEY, TOKEN])
    assert.ok(!text.includes(name), name);
});

test('a guest cannot add labels with the status of its answers, nor a client with its method', async (t) => {
  const guest = createServer((request, response) => {
    response.writeHead(Number(request.url?.slice(1)), { 'content-length': 0 }).end();
  }).listen(0, '127.0.0.1');
  t.after(() => guest.close());
  await once(guest, 'listening');
  harness.runner.ports.set(8080, (guest.address() as AddressInfo).port);
  const { id } = await harness.create();
  for (const status of [299, 499, 599]) await harness.fetch('PURGE', `/v1/runs/${id}/proxy/8080/${status}`);
  const route = '/v1/runs/:id/proxy/:port';
  await waitForGrowth(`coppice_http_requests_total{method="other",route="${route}",status="other"}`, 0, 3);
  assert.doesNotMatch(await scrape(), /status="(?:299|499|599)"|PURGE/u);
});

test('a request whose client leaves counts as aborted', async () => {
  const series =
    'coppice_http_requests_total{method="POST",route="/v1/runs/:id/exec/stream",status="aborted"}';
  const { id } = await harness.create();
  const started = Promise.withResolvers<void>();
  harness.runner.onExec = () => started.resolve();
  const left = new AbortController();
  const call = harness.fetch('POST', `/v1/runs/${id}/exec/stream`, {
    body: { command: 'sleep' },
    signal: left.signal,
  });
  call.catch(() => undefined);
  await started.promise;
  assert.equal(valueOf(await scrape(), 'coppice_http_open_requests{kind="streams"}'), 1);
  left.abort();
  await waitForGrowth(series, 0);
});

test('a WebSocket is one request, which ends with it', async () => {
  const series = 'coppice_http_requests_total{method="GET",route="/v1/runs/:id/shell",status="101"}';
  const { id } = await harness.create();
  harness.runner.onShell = (shell) => shell.send(FRAME.exit, '{"exit_code":0,"timed_out":false}');
  const client = new SocketClient(harness, `/v1/runs/${id}/shell`);
  assert.deepEqual(await client.closed, { code: 1000, reason: '' });
  await waitForGrowth(series, 0);
});

test('errors are counted by code, also those that Fastify finds before it has a route', async () => {
  const series = (code: string): string => `coppice_errors_total{code="${code}"}`;
  const first = await scrape();
  await harness.call('POST', '/v1/runs', { body: { image: 'node:latest' } });
  await harness.call('GET', '/v1/runs/%zz');
  const text = await scrape();
  for (const code of ['image_not_pinned', 'invalid_request'])
    assert.equal(valueOf(text, series(code)), valueOf(first, series(code)) + 1, code);
});

test('creates are counted by outcome and timed by step', async () => {
  const starts = (outcome: string): string =>
    `coppice_sandbox_starts_total{kind="create",outcome="${outcome}"}`;
  const first = await scrape();
  harness.runner.timingsMs = { image: 3, restore: 40, unheard_of: 1 };
  await harness.create();
  harness.runner.onCreate = () => {
    throw new AppError('image_not_found', 'there is no such image');
  };
  await harness.call('POST', '/v1/runs', { body: { image: IMAGE } });
  const text = await scrape();
  for (const outcome of ['ok', 'image_not_found'])
    assert.equal(valueOf(text, starts(outcome)), valueOf(first, starts(outcome)) + 1, outcome);
  const step = 'coppice_sandbox_start_step_duration_seconds';
  assert.equal(valueOf(text, `${step}_sum{kind="create",step="restore"}`), 0.04);
  assert.equal(valueOf(text, `${step}_count{kind="create",step="other"}`), 1);
  assert.doesNotMatch(text, /unheard_of/u);
});

test('forks, restores and resumes are starts of their own kind', async () => {
  const { id } = await harness.create();
  await harness.call('POST', `/v1/runs/${id}/fork`, { body: { count: 2 } });
  const snapshot = await harness.call('POST', `/v1/runs/${id}/snapshot`, { body: {} });
  await harness.call('POST', '/v1/runs/restore', { body: { snapshot_id: snapshot.body.id } });
  await harness.call('POST', `/v1/runs/${id}/hibernate`);
  const hibernated = await scrape();
  assert.equal(valueOf(hibernated, 'coppice_sandboxes{state="hibernated"}'), 1);
  await harness.call('POST', `/v1/runs/${id}/resume`);
  const text = await scrape();
  const counts = ['fork', 'restore', 'resume'].map((kind) =>
    valueOf(text, `coppice_sandbox_starts_total{kind="${kind}",outcome="ok"}`),
  );
  assert.deepEqual(counts, [2, 1, 1]);
  assert.equal(valueOf(text, 'coppice_sandboxes{state="hibernated"}'), 0);
});

test('what the runner measures is passed on', async () => {
  const text = await scrape();
  const expected = {
    [`coppice_runner_up{${RUNNER}}`]: 1,
    [`coppice_runner_build_info{${RUNNER},machine="a1b2",qemu="10.0.0",kernel="6.12.1",agent="c3d4",accelerator="tcg",confinement="full"}`]: 1,
    [`coppice_runner_vms{${RUNNER},phase="running"}`]: 2,
    [`coppice_runner_vms{${RUNNER},phase="saving"}`]: 0,
    [`coppice_runner_paused_vms{${RUNNER}}`]: 1,
    [`coppice_runner_reserved_memory_bytes{${RUNNER}}`]: 2048 * 2 ** 20,
    [`coppice_runner_reservable_vcpus{${RUNNER}}`]: 32,
    [`coppice_runner_starts{${RUNNER},state="waiting"}`]: 5,
    [`coppice_runner_warm_pool_creates_total{${RUNNER},result="hit"}`]: 10,
    [`coppice_runner_warm_vms{${RUNNER}}`]: 3,
    [`coppice_runner_disks{${RUNNER},state="detaching"}`]: 2,
    [`coppice_runner_disks_dirty_bytes{${RUNNER}}`]: 12_345,
    [`coppice_runner_cpu_seconds_total{${RUNNER}}`]: 1.5,
    [`coppice_runner_cordoned{${RUNNER}}`]: 0,
    coppice_controls: 1,
    'coppice_control_runners_total{event="taken"}': 1,
    'coppice_forwarded_requests_total{outcome="refused"}': 0,
  };
  const found = Object.fromEntries(Object.keys(expected).map((series) => [series, valueOf(text, series)]));
  assert.deepEqual(found, expected);
  assert.ok(valueOf(text, `coppice_runner_heartbeat_age_seconds{${RUNNER}}`) < 60);
  assert.match(text, /^coppice_control_leading\{control="ctl\w+"\} 1$/mu);
  assert.ok(valueOf(text, 'coppice_control_lease_left_seconds') > 0);
  assert.ok(valueOf(text, 'coppice_control_lease_renewal_seconds') > 0);
  assert.ok(valueOf(text, 'coppice_database_connections{state="idle"}') >= 1);
  assert.ok(valueOf(text, 'process_cpu_seconds_total') > 0);
});

test('a scrape is answered while the runner is down, without old numbers of it', async () => {
  await scrape();
  await harness.runner.stop();
  try {
    const text = await scrape();
    assert.ok(text.includes(`\n${UP} 0\n`));
    assert.doesNotMatch(text, /^coppice_runner_(?!up|cordoned|heartbeat_age)/mu);
    assert.match(text, /^coppice_sandboxes\{state="running"\} \d/mu);
  } finally {
    await harness.runner.start();
  }
  await waitFor('the runner', async () => valueOf(await scrape(), UP) === 1);
});

test('measurements of the runner that are out of bounds count as none', async () => {
  const { warm_pool } = RUNNER_METRICS;
  const wrong = [
    null,
    { ...RUNNER_METRICS, warm_pool: { ...warm_pool, hits: -1 } },
    { ...RUNNER_METRICS, versions: { ...RUNNER_METRICS.versions, qemu: 'q'.repeat(1000) } },
    { ...RUNNER_METRICS, vms: { invented: 1 } },
  ];
  for (const metrics of wrong) {
    harness.runner.metrics.runner = metrics;
    assert.ok((await scrape()).includes(`\n${UP} 0\n`));
  }
});
