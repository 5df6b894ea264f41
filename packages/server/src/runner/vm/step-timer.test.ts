import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pino from 'pino';
import { openTracing } from '../../lib/tracing/open-tracing.ts';
import { OtlpReceiver } from '../../lib/tracing/testing/otlp-receiver.ts';
import { runInSpan, startRequest } from '../../lib/tracing/tracing.ts';
import { StepTimer } from './step-timer.ts';

async function timeSteps(): Promise<StepTimer> {
  const timer = new StepTimer('vm.start');
  await delay(20);
  timer.end('network');
  await delay(10);
  timer.end('disk');
  await delay(10);
  timer.end('network');
  return timer;
}

test('the time of each step is measured, and added up for one that is repeated', async () => {
  const { timingsMs } = await timeSteps();
  assert.deepEqual(Object.keys(timingsMs), ['network', 'disk']);
  assert.ok((timingsMs['network'] ?? 0) >= 28 && (timingsMs['disk'] ?? 0) >= 9, JSON.stringify(timingsMs));
});

test('in a traced request each step is a span, until the request ends', async () => {
  await using receiver = await OtlpReceiver.start();
  const config = {
    url: `${receiver.endpoint}/v1/traces`,
    headers: {},
    resource: {},
    sampler: { ratio: 1, followsCaller: true },
    batchDelayMs: 50,
  };
  const log = pino({ level: 'silent' });
  const tracing = await openTracing(config, { name: 'runner', version: '1', log });
  const request = startRequest('request', {});
  const timer = await runInSpan(request, timeSteps);
  request?.end();
  timer.end('after the request');
  await tracing.close();
  const steps = receiver.spans.filter(({ name }) => name !== 'request');
  assert.deepEqual(
    steps.map(({ name, parentId }) => [name, parentId]),
    ['network', 'disk', 'network'].map((step) => [`vm.start.${step}`, request?.context.spanId]),
  );
  const lengthsMs = steps.map(({ startMs, endMs }) => endMs - startMs);
  const [first = 0, second = 0, third = 0] = lengthsMs;
  assert.ok(Math.abs(first + third - (timer.timingsMs['network'] ?? 0)) < 0.2, String(lengthsMs));
  assert.ok(Math.abs(second - (timer.timingsMs['disk'] ?? 0)) < 0.2, String(lengthsMs));
  assert.ok(Math.abs((steps[0]?.endMs ?? 0) - (steps[1]?.startMs ?? 0)) < 0.01);
});
