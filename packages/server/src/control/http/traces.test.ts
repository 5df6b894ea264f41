/** Traces of requests through the real API, as a collector gets them. The runner is a fake that records headers. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { AppError } from '@coppice/contract';
import pino from 'pino';
import { openTracing, type OpenTracing } from '../../lib/tracing/open-tracing.ts';
import { OtlpReceiver, type ReceivedSpan } from '../../lib/tracing/testing/otlp-receiver.ts';
import { API_KEY, startHarnessWith, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { SocketClient } from '../testing/requests/socket-client.ts';

const CALLER_TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const CALLER_SPAN = '00f067aa0ba902b7';
const TRACEPARENT = `00-${CALLER_TRACE}-${CALLER_SPAN}-01`;

let receiver: OtlpReceiver;
let tracing: OpenTracing;
let harness: ControlHarness;
before(async () => {
  receiver = await OtlpReceiver.start();
  const config = {
    url: `${receiver.endpoint}/v1/traces`,
    headers: {},
    resource: {},
    sampler: { ratio: 1, followsCaller: true },
    batchDelayMs: 50,
  };
  const log = pino({ level: 'silent' });
  tracing = await openTracing(config, { name: 'control', version: '1', log });
  harness = await startHarnessWith({});
});
after(async () => {
  await harness[Symbol.asyncDispose]();
  await tracing.close();
  await receiver[Symbol.asyncDispose]();
});
beforeEach(() => {
  harness.runner.onCreate = () => undefined;
  harness.runner.startsAtHead = false;
});

let requests = 0;

/** Makes a request, and returns its answer and the spans of its trace, of which the first is the root. */
async function trace(method: string, path: string, options: Parameters<ControlHarness['call']>[2] = {}) {
  requests += 1;
  const requestId = `traced-${requests}`;
  const headers = { ...options.headers, 'x-request-id': requestId };
  const answer = await harness.call(method, path, { ...options, headers });
  return { answer, ...(await findTrace(requestId)) };
}

/** The root is exported last or with the others, as it ends last. */
async function findTrace(requestId: string) {
  const root = await receiver.waitFor(
    requestId,
    (span) => span.attributes['coppice.request.id'] === requestId,
  );
  const spans = receiver.spans.filter(({ traceId }) => traceId === root.traceId);
  return { root, spans, line: logLineOf(requestId) };
}

function logLineOf(requestId: string): Record<string, unknown> {
  const lines = harness.logLines.map((line) => JSON.parse(line) as Record<string, unknown>);
  return lines.find((line) => line['request_id'] === requestId && line['msg'] === 'request') ?? {};
}

/** Writes the tree below a span, with the children of each in their order. */
function draw(spans: readonly ReceivedSpan[], { spanId, name }: ReceivedSpan, depth = 0): string[] {
  const children = spans
    .filter(({ parentId }) => parentId === spanId)
    .toSorted((a, b) => a.startMs - b.startMs);
  return [`${'  '.repeat(depth)}${name}`, ...children.flatMap((child) => draw(spans, child, depth + 1))];
}

test('a create is one tree: the request, its steps and the calls of the runner', async () => {
  harness.runner.traceparents.length = 0;
  const { answer, root, spans, line } = await trace('POST', '/v1/runs', { body: { image: 'node:22-slim' } });
  assert.equal(answer.status, 201);
  assert.deepEqual(draw(spans, root), [
    'POST /v1/runs',
    '  sandbox.create',
    '    POST /vms/:vm/admission',
    '    sandbox.insert',
    '    PUT /vms/:vm',
    '    sandbox.commit',
  ]);
  assert.deepEqual([root.kind, root.parentId, root.isFailed], ['server', '', false]);
  const { 'coppice.organization.id': organization, 'coppice.team.id': team, ...attributes } = root.attributes;
  assert.ok(typeof organization === 'string' && typeof team === 'string');
  assert.deepEqual(attributes, {
    'http.request.method': 'POST',
    'http.route': '/v1/runs',
    'http.response.status_code': 201,
    'url.scheme': 'http',
    'network.protocol.version': '1.1',
    'coppice.request.id': root.attributes['coppice.request.id'],
  });
  const calls = spans.filter(({ kind }) => kind === 'client');
  assert.deepEqual(
    harness.runner.traceparents,
    calls.map(({ traceId, spanId }) => `00-${traceId}-${spanId}-01`),
    'the runner gets the ids of the calls',
  );
  assert.deepEqual(calls[1]?.attributes, {
    'http.request.method': 'PUT',
    'url.template': '/vms/:vm',
    'http.response.status_code': 201,
    'network.transport': 'unix',
    'network.protocol.name': 'http',
    'network.protocol.version': '2',
  });
  assert.equal(line['trace_id'], root.traceId);
});

test('snapshot, rollback, fork, hibernate, resume and destroy are traced with their steps', async () => {
  const { id } = await harness.create();
  const snapshot = await trace('POST', `/v1/runs/${id}/snapshot`, { body: {} });
  const body = { snapshot_id: snapshot.answer.body.id };
  const traces = [
    snapshot,
    await trace('POST', `/v1/runs/${id}/rollback`, { body }),
    await trace('POST', `/v1/runs/${id}/fork`, { body: { count: 2 } }),
    await trace('POST', `/v1/runs/${id}/hibernate`),
    await trace('POST', `/v1/runs/${id}/resume`),
    await trace('DELETE', `/v1/runs/${id}`),
  ];
  for (const { answer } of traces) assert.ok(answer.status < 300, JSON.stringify(answer.body));
  assert.deepEqual(
    traces.map(({ spans, root }) => draw(spans, root)),
    [
      ['POST /v1/runs/:id/snapshot', '  sandbox.snapshot', '    sandbox.queue', '    POST /vms/:vm/snapshot'],
      [
        'POST /v1/runs/:id/rollback',
        '  sandbox.rollback',
        '    sandbox.queue',
        '    sandbox.commit',
        '    POST /vms/:vm/rollback',
        '    sandbox.commit',
      ],
      [
        'POST /v1/runs/:id/fork',
        '  sandbox.fork',
        '    sandbox.queue',
        '    sandbox.insert',
        '    POST /vms/:vm/fork',
        '    sandbox.commit',
        '    sandbox.commit',
      ],
      [
        'POST /v1/runs/:id/hibernate',
        '  sandbox.hibernate',
        '    sandbox.queue',
        '    sandbox.commit',
        '    POST /vms/:vm/hibernate',
        '    sandbox.commit',
      ],
      [
        'POST /v1/runs/:id/resume',
        '  sandbox.resume',
        '    sandbox.queue',
        '    PUT /vms/:vm',
        '    sandbox.commit',
      ],
      [
        'DELETE /v1/runs/:id',
        '  sandbox.destroy',
        '    sandbox.queue',
        '    DELETE /vms/:vm',
        '    sandbox.commit',
      ],
    ],
  );
  assert.ok(traces.every(({ root }) => root.attributes['coppice.sandbox.id'] === id));
});

test('a request that wakes a hibernated sandbox has the resume in its trace', async () => {
  const { id } = await harness.create({ timeout: 0, auto_hibernate: true });
  await harness.call('POST', `/v1/runs/${id}/hibernate`);
  const { spans, root } = await trace('POST', `/v1/runs/${id}/exec`, { body: { command: 'true' } });
  const tree = draw(spans, root);
  assert.deepEqual(tree.slice(0, 3), ['POST /v1/runs/:id/exec', '  sandbox.resume', '    sandbox.queue']);
  assert.ok(tree.includes('  POST /vms/:vm/agent/exec'), tree.join('\n'));
});

test('a command on a WebSocket is in the trace of its upgrade', async () => {
  const { id } = await harness.create();
  const socket = new SocketClient(harness, `/v1/runs/${id}/exec/ws`);
  harness.runner.startsAtHead = true;
  await socket.send({ command: 'true' });
  await socket.closed;
  const root = await receiver.waitFor('exec/ws', ({ name }) => name === 'GET /v1/runs/:id/exec/ws');
  assert.equal(root.attributes['http.response.status_code'], 101);
  const call = await receiver.waitFor('exec', ({ name, traceId }) => {
    return name === 'POST /vms/:vm/agent/exec' && traceId === root.traceId;
  });
  assert.equal(call.parentId, root.spanId);
});

test('an error answer and its log line name the trace, and the span has the code', async () => {
  harness.runner.onCreate = () => {
    throw new AppError('guest_unreachable', 'the reason is for the caller alone');
  };
  const { answer, root, spans, line } = await trace('POST', '/v1/runs', { body: { image: 'node:22-slim' } });
  assert.equal(answer.status, 502);
  assert.equal(answer.body.error.trace_id, root.traceId);
  assert.equal(line['trace_id'], root.traceId);
  const failed = harness.logLines.find((each) => each.includes('a request failed') && each.includes('alone'));
  assert.ok(failed !== undefined);
  assert.deepEqual([root.isFailed, root.attributes['error.type']], [true, 'guest_unreachable']);
  const call = spans.find(({ name }) => name === 'PUT /vms/:vm');
  assert.deepEqual([call?.isFailed, call?.attributes['error.type']], [true, 'guest_unreachable']);
});

test('a mistake of the caller is no failure', async () => {
  const { answer, root } = await trace('POST', '/v1/runs', { body: { image: '!' } });
  assert.equal(answer.body.error.trace_id, root.traceId);
  assert.deepEqual([root.isFailed, root.attributes['error.type']], [false, answer.body.error.code]);
});

test('a body that is not JSON, an unknown path and a wrong key have a trace, too', async () => {
  const broken = await trace('POST', '/v1/runs', {
    raw: '{',
    headers: { 'content-type': 'application/json' },
  });
  const unknown = await trace('GET', '/v1/secret-path?q=secret-query');
  const closed = await trace('GET', '/v1/runs', { apiKey: null });
  assert.deepEqual(
    [broken, unknown, closed].map(({ answer, root }) => [
      answer.status,
      root.name,
      answer.body.error.trace_id === root.traceId,
    ]),
    [
      [400, 'POST /v1/runs', true],
      [404, 'GET', true],
      [401, 'GET /v1/runs', true],
    ],
  );
});

test('no command, file, variable, label, query, key or name of a user is exported', async () => {
  const secrets = ['comm4nd', 'f1le', 'v4riable', 'l4bel', 'n4me', 'qu3ry', 'b0dy', 'im4ge'];
  const { id } = await harness.create({
    image: 'registry.test/im4ge:1',
    env: { SECRET: 'v4riable' },
    labels: { l4bel: 'l4bel' },
    name: 'n4me',
  });
  const path = `/v1/runs/${id}/files`;
  const traces = [
    await trace('POST', `/v1/runs/${id}/exec`, { body: { command: 'comm4nd', env: { A: 'v4riable' } } }),
    await trace('PATCH', `/v1/runs/${id}`, { body: { labels: { l4bel: 'l4bel' } } }),
    await trace('PUT', `${path}/upload?path=/f1le`, { raw: 'b0dy' }),
    await trace('GET', `${path}/download?path=/f1le`),
    await trace('GET', `/v1/runs?label=l4bel=l4bel&qu3ry=1`),
    await trace('GET', `/v1/runs/${id}/ports/8080/f1le?qu3ry=1`),
    await trace('GET', '/files/t0ken-that-opens-a-file'),
  ];
  assert.ok(traces.some(({ answer }) => answer.status === 200));
  for (const secret of [...secrets, 't0ken', API_KEY])
    assert.ok(
      receiver.exports.every(({ body }) => !body.includes(secret)),
      secret,
    );
});

test('the span of a caller is linked, and continued only where the operator trusts callers', async () => {
  const linked = await trace('GET', '/v1/runs', { headers: { traceparent: TRACEPARENT } });
  assert.notEqual(linked.root.traceId, CALLER_TRACE);
  assert.deepEqual(linked.root.links, [{ traceId: CALLER_TRACE, spanId: CALLER_SPAN }]);
  await harness.stopControl();
  await harness.startControl({ continuesTraces: true });
  try {
    const headers = { traceparent: TRACEPARENT };
    const continued = await trace('GET', '/v1/runs', { headers });
    assert.deepEqual([continued.root.traceId, continued.root.parentId], [CALLER_TRACE, CALLER_SPAN]);
    const broken = await trace('GET', '/v1/runs', { headers: { traceparent: `${TRACEPARENT}x` } });
    assert.notEqual(broken.root.traceId, CALLER_TRACE);
    assert.equal(broken.root.parentId, '');
  } finally {
    await harness.stopControl();
    await harness.startControl();
  }
});

test('probes of monitoring are not traced', async () => {
  await harness.call('GET', '/healthz');
  await trace('GET', '/v1/runs');
  assert.ok(!receiver.spans.some(({ name }) => name.includes('healthz')));
});

test('work that no request waits for is in no trace', async () => {
  const countHibernations = () =>
    receiver.spans.filter(({ attributes }) => attributes['url.template'] === '/vms/:vm/hibernate').length;
  const before = countHibernations();
  const { id } = await harness.create({ timeout: 1, auto_hibernate: true });
  await waitFor('the hibernation', async () => {
    const { body } = await harness.call('GET', `/v1/runs/${id}`);
    return body.status === 'hibernated';
  });
  await trace('GET', '/v1/runs');
  assert.equal(countHibernations(), before);
  assert.ok(before > 0, 'those that a request asked for are');
});
