/** Traces of real virtual machines, as a collector gets them from control and the runner. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import {
  OtlpReceiver,
  type ReceivedSpan,
} from '../../packages/server/src/lib/tracing/testing/otlp-receiver.ts';
import { Api } from '../fixtures/api/api.ts';
import { listChildren, readEnvironment } from '../fixtures/host/processes.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';

const INSTANCE = 17;
const COLLECTOR_TOKEN = 'hush-of-the-collector';
const BATCH_DELAY_MS = 200;
const SPANS_MS = 30_000;
/** A flush of two seconds in each role, and the rest of an ordinary stop. */
const STOP_MS = 15_000;
const SHAPE = { image: 'coppice/base:1', mem_mib: 256, timeout: 0 };

interface Trace {
  root: ReceivedSpan;
  spans: ReceivedSpan[];
}

/** Whether every span but the root has its parent in the trace. */
function isConnected(spans: readonly ReceivedSpan[], root: ReceivedSpan): boolean {
  const ids = new Set(spans.map(({ spanId }) => spanId));
  return root.parentId === '' && spans.every((span) => span === root || ids.has(span.parentId));
}

describe('traces', () => {
  const resources = new AsyncDisposableStack();
  let receiver: OtlpReceiver;
  let service: Service;
  let api: Api;
  let id: string;

  after(() => resources.disposeAsync());

  before(async () => {
    receiver = resources.use(await OtlpReceiver.start());
    const env = {
      OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint,
      OTEL_EXPORTER_OTLP_HEADERS: `authorization=Bearer%20${COLLECTOR_TOKEN}`,
      OTEL_BSP_SCHEDULE_DELAY: String(BATCH_DELAY_MS),
    };
    service = resources.use(await startPrepared({ instance: INSTANCE, env }));
    api = new Api(service);
  });

  /** Makes a request. Returns its trace once it is `whole`, and connected: a span is exported before its parent. */
  const trace = async (path: string, body: unknown, whole: (spans: readonly ReceivedSpan[]) => boolean) => {
    const requestId = `e2e-${path.replaceAll(/[^a-z0-9]/gu, '-').slice(-40)}`;
    const answer = await api.call('POST', path, { body, headers: { 'x-request-id': requestId } });
    assert.ok(answer.status < 300, answer.text);
    const root = await receiver.waitFor(
      requestId,
      (span) => span.attributes['coppice.request.id'] === requestId,
    );
    const ofTrace = (): ReceivedSpan[] => receiver.spans.filter(({ traceId }) => traceId === root.traceId);
    await service.waitFor(
      `the trace of ${path}`,
      SPANS_MS,
      () => isConnected(ofTrace(), root) && whole(ofTrace()),
    );
    return { answer, root, spans: ofTrace() };
  };

  const count = (spans: readonly ReceivedSpan[], name: string): number =>
    spans.filter((span) => span.name === name).length;

  const findOne = ({ spans }: Trace, name: string, kind?: ReceivedSpan['kind']): ReceivedSpan => {
    const found = spans.filter((span) => span.name === name && (kind === undefined || span.kind === kind));
    assert.equal(found.length, 1, `${name} among ${spans.map((span) => span.name).join(', ')}`);
    return found[0] as ReceivedSpan;
  };

  const assertWithin = (inner: ReceivedSpan, outer: ReceivedSpan): void => {
    const toleratedMs = 10;
    assert.ok(inner.startMs >= outer.startMs - toleratedMs, `${inner.name} begins in ${outer.name}`);
    assert.ok(inner.endMs <= outer.endMs + toleratedMs, `${inner.name} ends in ${outer.name}`);
  };

  it('lead from a create in control to the steps of the virtual machine', { timeout: 120_000 }, async () => {
    const created = await trace('/v1/runs', SHAPE, (spans) => count(spans, 'vm.start') === 1);
    id = String(created.answer.body['id']);
    const chain = [
      created.root,
      findOne(created, 'sandbox.create'),
      findOne(created, 'PUT /vms/:vm', 'client'),
      findOne(created, 'PUT /vms/:vm', 'server'),
      findOne(created, 'vm.start'),
    ];
    for (const [index, span] of chain.entries()) {
      const parent = chain[index - 1];
      if (parent === undefined) continue;
      assert.equal(span.parentId, parent.spanId, `${span.name} is a child of ${parent.name}`);
      assertWithin(span, parent);
    }
    assert.deepEqual(
      chain.map(({ resource }) => resource['service.name']),
      ['coppice-control', 'coppice-control', 'coppice-control', 'coppice-runner', 'coppice-runner'],
    );
    assert.equal(created.root.attributes['http.response.status_code'], 201);
    const start = chain.at(-1);
    assert.ok(start);
    assert.equal(start.attributes['coppice.sandbox.id'], id);
    assert.equal(start.attributes['coppice.vm.warm'], false);
    const steps = created.spans.filter(({ parentId }) => parentId === start.spanId);
    for (const step of steps) assertWithin(step, start);
    const names = steps.toSorted((a, b) => a.startMs - b.startMs).map(({ name }) => name);
    const expected = ['image', 'admission', 'template', 'turn', 'network', 'disk', 'cgroup', 'restore'];
    const after = ['egress', 'agent', 'workspace', 'resume'];
    assert.deepEqual(
      names.filter((name) => name.startsWith('vm.start.')),
      [...expected, ...after].map((step) => `vm.start.${step}`),
    );
    const sumMs = steps
      .filter(({ name }) => name.startsWith('vm.start.'))
      .reduce((sum, { startMs, endMs }) => sum + endMs - startMs, 0);
    const lengthMs = start.endMs - start.startMs;
    assert.ok(sumMs > 0.8 * lengthMs, `${sumMs} of ${lengthMs} ms are in steps`);
    const admission = findOne(created, 'POST /vms/:vm/admission', 'server');
    assert.equal(admission.resource['service.name'], 'coppice-runner');
    assert.ok(findOne(created, 'sandbox.insert').startMs >= admission.startMs);
  });

  it('are named by the log lines of both roles', async () => {
    const root = receiver.spans.find(({ name }) => name === 'POST /v1/runs');
    assert.ok(root);
    const lines = service.output.split('\n').filter((line) => line.includes(root.traceId));
    assert.ok(lines.some((line) => line.includes('"role":"runner"') && line.includes('VM created')));
    assert.ok(lines.some((line) => line.includes('"role":"control"') && line.includes('"msg":"request"')));
    const twice = lines.filter((line) => line.split('"trace_id"').length > 2);
    assert.deepEqual(twice, []);
  });

  it('show the capture and the children of a fork', { timeout: 120_000 }, async () => {
    const whole = (spans: readonly ReceivedSpan[]): boolean => count(spans, 'vm.start') === 2;
    const forked = await trace(`/v1/runs/${id}/fork`, { count: 2 }, whole);
    const server = findOne(forked, 'POST /vms/:vm/fork', 'server');
    const capture = findOne(forked, 'vm.capture');
    assert.equal(capture.parentId, server.spanId);
    for (const step of ['freeze', 'stop', 'devices', 'memory', 'disk', 'go_on'])
      assert.equal(findOne(forked, `vm.capture.${step}`).parentId, capture.spanId);
    const starts = forked.spans.filter(({ name }) => name === 'vm.start');
    assert.ok(starts.every(({ parentId, startMs }) => parentId === server.spanId && startMs > capture.endMs));
    assert.equal(count(forked.spans, 'vm.start.resume'), 2);
  });

  it('show a hibernation and the resume by a command', { timeout: 120_000 }, async () => {
    const hibernated = await trace(
      `/v1/runs/${id}/hibernate`,
      {},
      (spans) => count(spans, 'vm.capture') === 1,
    );
    assert.equal(findOne(hibernated, 'sandbox.hibernate').parentId, hibernated.root.spanId);
    await trace(`/v1/runs/${id}/resume`, {}, (spans) => count(spans, 'vm.start') === 1);
    const ran = await trace(`/v1/runs/${id}/exec`, { command: 'echo s3cret-command' }, (spans) =>
      spans.some(({ name, kind }) => name === 'POST /vms/:vm/agent/exec' && kind === 'server'),
    );
    const { parentId } = findOne(ran, 'POST /vms/:vm/agent/exec', 'server');
    assert.equal(parentId, findOne(ran, 'POST /vms/:vm/agent/exec', 'client').spanId);
    assert.ok(receiver.exports.every(({ body }) => !body.includes('s3cret')));
  });

  it('leave the credentials of the collector to the roles alone', () => {
    const [sent] = receiver.exports;
    assert.equal(sent?.headers.authorization, `Bearer ${COLLECTOR_TOKEN}`);
    assert.ok(!service.output.includes(COLLECTOR_TOKEN));
    const roles = [service.rolePid('control'), service.rolePid('runner')];
    const others = [...roles.flatMap((pid) => listChildren(pid)), ...service.vmPids()];
    assert.ok(others.length >= 3);
    for (const pid of others) assert.ok(!readEnvironment(pid).includes('OTEL_'), `process ${pid}`);
  });

  it('do no harm when the collector hangs', { timeout: 120_000 }, async () => {
    receiver.manner = 'hang';
    const startedAt = performance.now();
    const sandbox = await api.create(SHAPE);
    const { stdout } = await api.exec(sandbox.id, 'echo served');
    assert.equal(stdout, 'served\n');
    await api.destroy(sandbox.id);
    const servedMs = performance.now() - startedAt;
    // Not a measurement: a request that waited for an export would take its whole deadline.
    assert.ok(servedMs < 10_000, `${servedMs} ms`);
    await delay(2 * BATCH_DELAY_MS);
    const stoppedAt = performance.now();
    assert.equal(await service.stop(), 0);
    const stopMs = performance.now() - stoppedAt;
    assert.ok(stopMs < STOP_MS, `${stopMs} ms`);
    const warnings = service.output.split('\n').filter((line) => line.includes('traces are not exported'));
    assert.deepEqual(warnings.map((line) => /"role":"(\w+)"/u.exec(line)?.[1] ?? '').toSorted(), [
      'control',
      'runner',
    ]);
  });

  it('do no harm when the collector is away', { timeout: 120_000 }, async () => {
    const from = service.output.length;
    await receiver[Symbol.asyncDispose]();
    await service.launch();
    const { stdout } = await api.exec(id, 'echo served');
    assert.equal(stdout, 'served\n');
    await api.destroy(id);
    const stoppedAt = performance.now();
    assert.equal(await service.stop(), 0);
    const stopMs = performance.now() - stoppedAt;
    assert.ok(stopMs < STOP_MS, `${stopMs} ms`);
    const warnings = service.output.slice(from).split('traces are not exported').length - 1;
    assert.ok(warnings >= 1 && warnings <= 2, `${warnings} warnings of two roles`);
  });
});
