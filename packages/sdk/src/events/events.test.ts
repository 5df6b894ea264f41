import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { CoppiceError } from '../transport/errors.ts';
import { errorBody, LoopbackServer, SANDBOX_ID, sendJson } from '../testing/loopback-server.ts';
import { untilRejected } from '../testing/virtual-time.ts';
import type { EventInfo, LostEvents } from './event-record.ts';

const record = (id: number, type = 'sandbox.created') => ({
  id,
  type,
  timestamp: '2026-11-21T06:30:00.000Z',
  team_id: 'team1',
  run_id: SANDBOX_ID,
  labels: { job: 'nightly' },
  data: { snapshot_id: 'snap1' },
});
const frame = (data: { id?: number }): string => `id: ${data.id}\ndata: ${JSON.stringify(data)}\n\n`;
const position = (id: number): string => frame({ type: 'position', id } as { id: number });

/** Sends events, and then leaves the answer open, ends it, or breaks it off. */
function send(response: ServerResponse, text: string, then: 'open' | 'end' | 'break'): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(text, () => {
    if (then === 'end') response.end();
    if (then === 'break') response.destroy();
  });
}

/** Reads that many events, and leaves. */
async function take(events: AsyncGenerator<EventInfo | LostEvents>, count: number) {
  const taken: (EventInfo | LostEvents)[] = [];
  for await (const event of events) if (taken.push(event) === count) break;
  return taken;
}

const queriesOf = (server: LoopbackServer): string[] =>
  server.seen.map(({ url }) => decodeURIComponent(url.replace('/v1/events', '')));

test('events are yielded with their fields, and the query has the filter', async () => {
  await using server = await LoopbackServer.start((_, response) =>
    send(response, `${position(3)}:\n\n${frame(record(5))}`, 'open'),
  );
  const events = server.client().events({
    after: 3,
    types: ['sandbox.created', 'sandbox.failed'],
    runId: SANDBOX_ID,
    labels: { a: 'b:c' },
  });
  assert.deepEqual(await take(events, 1), [
    {
      id: 5,
      type: 'sandbox.created',
      timestamp: '2026-11-21T06:30:00.000Z',
      teamId: 'team1',
      runId: SANDBOX_ID,
      labels: { job: 'nightly' },
      data: { snapshot_id: 'snap1' },
    },
  ]);
  assert.deepEqual(queriesOf(server), [
    `?type=sandbox.created&type=sandbox.failed&run_id=${SANDBOX_ID}&label=a:b:c&after=3`,
  ]);
  assert.equal(server.last.headers.accept, 'text/event-stream');
});

test('after a lost connection it continues behind the last event or position, and repeats nothing', async () => {
  const answers = [
    (response: ServerResponse) => send(response, position(7), 'break'),
    (response: ServerResponse) => send(response, `${position(7)}${frame(record(9))}`, 'end'),
    (response: ServerResponse) =>
      sendJson(response, { status: 503, body: errorBody('unavailable', 'starting') }),
    // The second event is cut off.
    (response: ServerResponse) =>
      send(response, `${position(9)}${frame(record(12))}${frame(record(13)).slice(0, -9)}`, 'break'),
    (response: ServerResponse) => send(response, `${position(12)}${frame(record(13))}`, 'open'),
  ];
  await using server = await LoopbackServer.start((_, response) =>
    answers[server.seen.length - 1]!(response),
  );
  const events = await take(server.client({ maxRetries: 0 }).events(), 3);
  assert.deepEqual(
    events.map(({ id }) => id),
    [9, 12, 13],
  );
  assert.deepEqual(queriesOf(server), ['', '?after=7', '?after=9', '?after=9', '?after=12']);
});

test('a quiet stream lasts longer than an answer may take', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    send(response, position(1), 'open');
    setTimeout(() => response.write(frame(record(2))), 400);
  });
  assert.equal((await take(server.client({ timeoutMs: 100 }).events(), 1))[0]?.id, 2);
  assert.equal(server.seen.length, 1);
});

test('events that are no longer kept are reported once', async () => {
  await using server = await LoopbackServer.start((_, response) =>
    send(response, `${frame({ type: 'lost', id: 40 } as { id: number })}${frame(record(41))}`, 'open'),
  );
  const [lost, next] = await take(server.client().events({ after: 3 }), 2);
  assert.deepEqual([lost, next?.id], [{ type: 'lost', id: 40 }, 41]);
});

test('a refusal is the caller’s at once, also in the middle of the stream', async () => {
  await using server = await LoopbackServer.answering(401, errorBody('unauthorized', 'no such key'));
  await assert.rejects(take(server.client().events(), 1), { code: 'unauthorized' });
  assert.equal(server.seen.length, 1);
  await using late = await LoopbackServer.start((_, response) =>
    send(
      response,
      `data: ${JSON.stringify({ type: 'error', data: 'revoked', ...errorBody('unauthorized', 'revoked') })}\n\n`,
      'open',
    ),
  );
  await assert.rejects(take(late.client().events(), 1), (error) => {
    assert.ok(error instanceof CoppiceError);
    assert.deepEqual([error.code, error.detail], ['unauthorized', 'revoked']);
    return true;
  });
});

test('an aborted signal ends the loop while it waits', async () => {
  await using server = await LoopbackServer.start((_, response) => send(response, position(1), 'open'));
  const stop = new AbortController();
  const reading = take(server.client().events({ signal: stop.signal }), 1);
  setTimeout(() => stop.abort(new Error('enough')), 50);
  await assert.rejects(reading, { message: 'enough' });
});

test('a host that accepts connections and never answers is given up, although each attempt takes long', async () => {
  await using server = await LoopbackServer.start(() => undefined);
  const client = server.client({ timeoutMs: 20_000 });
  const { error, tookMs } = await untilRejected(3_600_000, (signal) => client.events({ signal }).next());
  assert.equal((error as CoppiceError).code, 'timeout');
  // 36 attempts of 20 s, and the waits between them.
  assert.ok(tookMs > 720_000 && tookMs < 1_200_000, `${tookMs} ms`);
  assert.ok(server.seen.length > 0);
});

test('kept events are listed page by page', async () => {
  await using server = await LoopbackServer.start(({ url }, response) => {
    const isFirst = !url.includes('after=2');
    const headers = { link: '</v1/events?after=2&limit=2>; rel="next"' };
    sendJson(response, {
      body: isFirst ? [record(1), record(2)] : [record(3, 'sandbox.failed')],
      ...(isFirst ? { headers } : {}),
    });
  });
  const events = await server.client().listEvents({ types: ['sandbox.created'] });
  assert.deepEqual(
    events.map(({ id, type }) => [id, type]),
    [
      [1, 'sandbox.created'],
      [2, 'sandbox.created'],
      [3, 'sandbox.failed'],
    ],
  );
  assert.deepEqual(queriesOf(server), ['?type=sandbox.created', '?after=2&limit=2']);
  assert.throws(() => server.client().listEvents({ limit: 0 }), TypeError);
});
