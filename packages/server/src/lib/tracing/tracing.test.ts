/** Spans as a collector gets them, recorded by the real library. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import pino from 'pino';
import { openTracing, type OpenTracing } from './open-tracing.ts';
import { OtlpReceiver, type ReceivedSpan } from './testing/otlp-receiver.ts';
import type { TracingConfig } from './tracing-config.ts';
import {
  bindToSpan,
  continueTrace,
  findSpan,
  runInSpan,
  runUntraced,
  startRequest,
  traced,
  traceStages,
} from './tracing.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';
const HEADER = `00-${TRACE}-${SPAN}-01`;

let receiver: OtlpReceiver;
let tracing: OpenTracing | undefined;
beforeEach(async () => {
  receiver = await OtlpReceiver.start();
});
afterEach(async () => {
  await tracing?.close();
  tracing = undefined;
  await receiver[Symbol.asyncDispose]();
});

async function open(change: Partial<TracingConfig> = {}): Promise<void> {
  const config = {
    url: `${receiver.endpoint}/v1/traces`,
    headers: { authorization: 'Bearer for-the-collector' },
    resource: { 'deployment.environment.name': 'test' },
    sampler: { ratio: 1, followsCaller: true },
    batchDelayMs: 50,
    ...change,
  };
  const log = pino({ level: 'silent' });
  tracing = await openTracing(config, { name: 'control', version: '1.2.3', log });
}

/** Ends the recording, and returns the spans in the order of their ends. */
async function flush(): Promise<ReceivedSpan[]> {
  assert.equal(await tracing?.close(), true);
  tracing = undefined;
  return receiver.spans.toSorted((a, b) => a.endMs - b.endMs);
}

function find(spans: readonly ReceivedSpan[], name: string): ReceivedSpan {
  const found = spans.filter((span) => span.name === name);
  assert.equal(found.length, 1, `one span ${name} of ${spans.map((span) => span.name).join(', ')}`);
  return found[0] as ReceivedSpan;
}

test('work in a request is a tree of spans with times, kinds and attributes', async () => {
  await open();
  const request = startRequest('POST /v1/runs', { attributes: { 'http.request.method': 'POST' } });
  assert.ok(request);
  await runInSpan(request, () =>
    traced('outer', async (span) => {
      span?.set({ 'coppice.fork.count': 3, 'coppice.vm.warm': true });
      await traced('inner', () => delay(20), { kind: 'client', attributes: { 'url.template': '/vms/:vm' } });
    }),
  );
  request.end();
  const spans = await flush();
  const [root, outer, inner] = ['POST /v1/runs', 'outer', 'inner'].map((name) => find(spans, name));
  assert.ok(root && outer && inner);
  assert.equal(spans.length, 3);
  assert.equal(new Set(spans.map(({ traceId }) => traceId)).size, 1);
  assert.deepEqual([root.parentId, outer.parentId, inner.parentId], ['', root.spanId, outer.spanId]);
  assert.deepEqual([root.kind, outer.kind, inner.kind], ['server', 'internal', 'client']);
  assert.deepEqual(outer.attributes, { 'coppice.fork.count': 3, 'coppice.vm.warm': true });
  assert.ok(inner.endMs - inner.startMs >= 19 && root.startMs <= inner.startMs && inner.endMs <= root.endMs);
  assert.ok(Math.abs(root.endMs - Date.now()) < 60_000, 'times are Unix times');
});

test('the collector gets one POST of protobuf with the headers and the resource', async () => {
  await open();
  startRequest('GET /v1/runs', {})?.end();
  const [span] = await flush();
  const [sent] = receiver.exports;
  assert.equal(sent?.path, '/v1/traces');
  assert.equal(sent.headers['content-type'], 'application/x-protobuf');
  assert.equal(sent.headers.authorization, 'Bearer for-the-collector');
  const { 'service.instance.id': instance, ...resource } = span?.resource ?? {};
  assert.match(String(instance), /^[0-9a-f-]{36}$/u);
  assert.deepEqual(resource, {
    'service.name': 'coppice-control',
    'service.namespace': 'coppice',
    'service.version': '1.2.3',
    'coppice.role': 'control',
    'deployment.environment.name': 'test',
  });
});

test('the name of the service may be another one, which precedes that of the attributes', async () => {
  await open({ serviceName: 'boxes', resource: { 'service.name': 'other' } });
  startRequest('GET /v1/runs', {})?.end();
  assert.equal((await flush())[0]?.resource['service.name'], 'boxes');
});

test('an error leaves its code and never its message', async () => {
  await open();
  const secret = 'the command rm -rf of the caller';
  const throwing = async (name: string, error: Error, kind: 'internal' | 'client' = 'internal') => {
    const work = traced(name, () => Promise.reject(error), { kind });
    await assert.rejects(work, (thrown) => thrown === error, 'the work keeps its own error');
  };
  const request = startRequest('request', {});
  await runInSpan(request, async () => {
    await throwing('fault', new AppError('unavailable', secret));
    await throwing('bug', new TypeError(secret));
    await throwing('mistake', new AppError('invalid_request', secret));
    await throwing('call', new AppError('invalid_request', secret), 'client');
  });
  request?.end();
  const spans = await flush();
  const outcomes = ['fault', 'bug', 'mistake', 'call'].map((name) => {
    const { attributes, isFailed, statusText, events } = find(spans, name);
    return [attributes['error.type'], isFailed, statusText, events];
  });
  assert.deepEqual(outcomes, [
    ['unavailable', true, '', 0],
    ['TypeError', true, '', 0],
    ['invalid_request', false, '', 0],
    ['invalid_request', true, '', 0],
  ]);
  assert.ok(receiver.exports.every(({ body }) => !body.includes(secret)));
});

test('a role continues the trace of another one, and no trace that is invalid or not recorded', async () => {
  await open();
  continueTrace('runner', HEADER)?.end();
  for (const header of [undefined, 'nonsense', HEADER.replace(/1$/u, '0')])
    assert.equal(continueTrace('none', header), undefined, String(header));
  const spans = await flush();
  assert.deepEqual(
    spans.map(({ name, traceId, parentId }) => [name, traceId, parentId]),
    [['runner', TRACE, SPAN]],
  );
});

test('a request may have a link to a span of its caller', async () => {
  await open();
  startRequest('linked', { link: { traceId: TRACE, spanId: SPAN, isSampled: true } })?.end();
  const [span] = await flush();
  assert.deepEqual([span?.parentId, span?.links], ['', [{ traceId: TRACE, spanId: SPAN }]]);
  assert.notEqual(span?.traceId, TRACE);
});

test('work that continues after its request, or runs untraced, is not in the trace', async () => {
  await open();
  const late = Promise.withResolvers<void>();
  const request = startRequest('request', {});
  const rest = runInSpan(request, async () => {
    await runUntraced(() => traced('apart', () => delay(1)));
    await late.promise;
    assert.equal(findSpan(), undefined);
    await traced('late', () => delay(1));
  });
  await delay(20);
  request?.end();
  late.resolve();
  await rest;
  assert.deepEqual(
    (await flush()).map(({ name }) => name),
    ['request'],
  );
});

test('bound work is part of the span in which it was bound', async () => {
  await open();
  const first = startRequest('first', {});
  const second = startRequest('second', {});
  const bound = runInSpan(first, () => bindToSpan((name: string) => traced(name, () => delay(1))));
  await runInSpan(second, () => bound('step'));
  first?.end();
  second?.end();
  const spans = await flush();
  assert.equal(find(spans, 'step').parentId, find(spans, 'first').spanId);
});

test('stages are spans, one after the other', async () => {
  await open();
  const request = startRequest('request', {});
  await runInSpan(request, async () => {
    const stages = traceStages('image');
    stages?.enter('pull');
    await delay(10);
    stages?.enter('flatten');
    stages?.end();
    stages?.end();
  });
  request?.end();
  const spans = await flush();
  const [pull, flatten] = ['image.pull', 'image.flatten'].map((name) => find(spans, name));
  assert.ok(pull && flatten);
  assert.ok(pull.endMs - pull.startMs >= 9 && pull.endMs <= flatten.startMs);
  assert.deepEqual([pull.parentId, flatten.parentId], [request?.context.spanId, request?.context.spanId]);
  assert.equal(spans.length, 3);
});

test('a sampler leaves out whole traces, and follows a caller only if it is told to', async () => {
  await open({ sampler: { ratio: 0, followsCaller: true } });
  assert.equal(startRequest('left out', {}), undefined);
  const remote = { traceId: TRACE, spanId: SPAN, isSampled: true };
  const followed = startRequest('followed', { remote });
  await runInSpan(followed, () => traced('step', () => delay(1)));
  followed?.end();
  assert.equal(
    startRequest('not recorded by its caller', { remote: { ...remote, isSampled: false } }),
    undefined,
  );
  assert.deepEqual((await flush()).map(({ name }) => name).toSorted(), ['followed', 'step']);
  await open({ sampler: { ratio: 0, followsCaller: false } });
  assert.equal(startRequest('never', { remote }), undefined);
});

test('a part of the traces is recorded, each of them whole', async () => {
  await open({ sampler: { ratio: 0.5, followsCaller: false } });
  for (let count = 0; count < 200; count += 1) {
    const request = startRequest('request', {});
    await runInSpan(request, () => traced('step', async () => undefined));
    request?.end();
  }
  const spans = await flush();
  const requests = spans.filter(({ name }) => name === 'request').length;
  assert.ok(requests > 50 && requests < 150, `${requests} of 200`);
  assert.equal(spans.length, 2 * requests);
});

test('without a tracer work is only called, and has no span', async () => {
  assert.equal(startRequest('request', {}), undefined);
  assert.equal(continueTrace('runner', HEADER), undefined);
  assert.equal(await traced('step', async (span) => [span, findSpan()].length), 2);
  assert.equal(await traced('step', async (span) => span), undefined);
  assert.equal(traceStages('image'), undefined);
  const work = (): number => 1;
  assert.equal(bindToSpan(work), work);
});
