/** A collector that hangs, refuses, drips or is away: the work continues, the queue is bounded, the log has one line. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pino from 'pino';
import { openTracing } from './open-tracing.ts';
import { OtlpReceiver, type Manner } from './testing/otlp-receiver.ts';
import { startRequest } from './tracing.ts';
import { WatchedExporter } from './watched-exporter.ts';

const DEADLINE_MS = 300;

interface Line {
  level: number;
  msg: string;
  reason?: string;
  lost_spans?: number;
}

function openLog(): { log: pino.Logger; lines: Line[] } {
  const lines: Line[] = [];
  return { lines, log: pino({}, { write: (line: string) => lines.push(JSON.parse(line) as Line) }) };
}

function open(port: number, log: pino.Logger) {
  const url = `http://127.0.0.1:${port}/v1/traces`;
  const config = {
    url,
    headers: { 'x-token': 'hush' },
    resource: {},
    sampler: { ratio: 1, followsCaller: true },
    batchDelayMs: 5000,
  };
  return openTracing(config, { name: 'control', version: '1', log });
}

function record(count: number): void {
  for (let each = 0; each < count; each += 1) startRequest('request', {})?.end();
}

for (const manner of ['hang', 'drip', 'fail'] satisfies Manner[]) {
  test(`a collector that does "${manner}" holds up a shutdown for two seconds at most`, async () => {
    await using receiver = await OtlpReceiver.start();
    receiver.manner = manner;
    const { log, lines } = openLog();
    const tracing = await open(receiver.port, log);
    record(10);
    const startedAt = performance.now();
    assert.equal(await tracing.close(), false);
    const elapsedMs = performance.now() - startedAt;
    assert.ok(elapsedMs < 4000, `${elapsedMs} ms`);
    assert.equal(lines.length, 1, JSON.stringify(lines));
    assert.match(lines[0]?.msg ?? '', /traces are not exported/u);
    assert.ok(!JSON.stringify(lines).includes('hush'));
  });
}

test('a collector that is a little too slow is one warning a minute, and its losses are counted', async () => {
  const { log, lines } = openLog();
  const inner = {
    export: (_spans: unknown, done: (result: { code: number }) => void) => done({ code: 0 }),
    shutdown: () => Promise.resolve(),
  };
  const agent = { destroy: () => undefined };
  const watched = new WatchedExporter(inner, { agent, maxQueuedSpans: 2, deadlineMs: DEADLINE_MS, log });
  const batch = [{}, {}] as Parameters<WatchedExporter['export']>[0];
  for (let round = 0; round < 10; round += 1) {
    for (let span = 0; span < 5; span += 1) watched.noteQueued();
    watched.export(batch, () => undefined);
  }
  assert.deepEqual(
    lines.map(({ level, lost_spans }) => [level, lost_spans]),
    [
      [40, undefined],
      [30, 3],
    ],
  );
});

test('a collector that is away is one warning', async () => {
  const gone = await OtlpReceiver.start();
  const { port } = gone;
  await gone[Symbol.asyncDispose]();
  const { log, lines } = openLog();
  const tracing = await open(port, log);
  record(10);
  assert.equal(await tracing.close(), false);
  assert.equal(lines.length, 1);
});

test('the queue is bounded: more spans than it holds are dropped, and the rest arrives', async () => {
  await using receiver = await OtlpReceiver.start();
  receiver.manner = 'hang';
  const { log, lines } = openLog();
  const tracing = await open(receiver.port, log);
  // The first batch hangs on its way; it and a full queue are all that is ever held.
  record(20_000);
  await delay(100);
  assert.equal(receiver.exports.length, 1, 'one export at a time');
  assert.deepEqual(
    lines.map(({ reason }) => reason),
    ['more than 2048 spans wait for the collector'],
  );
  receiver.manner = 'accept';
  await tracing.close();
  assert.ok(receiver.spans.length <= 2048, `${receiver.spans.length}`);
  assert.ok(receiver.spans.length > 0);
});

test('an export ends by its deadline, with one warning for all that fail and a line when it works again', async () => {
  const { log, lines } = openLog();
  let destroyed = 0;
  let manner: 'hang' | 'accept' = 'hang';
  const inner = {
    export: (_spans: unknown, done: (result: { code: number }) => void) => {
      if (manner === 'accept') done({ code: 0 });
    },
    shutdown: () => Promise.resolve(),
  };
  const watched = new WatchedExporter(inner, {
    agent: { destroy: () => (destroyed += 1) },
    maxQueuedSpans: 5,
    deadlineMs: DEADLINE_MS,
    log,
  });
  const spans = Array.from({ length: 5 }, () => ({})) as Parameters<WatchedExporter['export']>[0];
  const send = () => new Promise<number>((resolve) => watched.export(spans, ({ code }) => resolve(code)));
  const keepAlive = setInterval(() => undefined, DEADLINE_MS);
  try {
    assert.equal(await send(), 1);
    assert.equal(await send(), 1);
  } finally {
    clearInterval(keepAlive);
  }
  assert.equal(destroyed, 2, 'the connections of a late collector are closed');
  manner = 'accept';
  assert.equal(await send(), 0);
  assert.equal(await send(), 0);
  assert.deepEqual(
    lines.map(({ level, lost_spans }) => [level, lost_spans]),
    [
      [40, undefined],
      [30, 10],
    ],
  );
});
