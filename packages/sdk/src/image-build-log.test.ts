import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { followBuildLog } from './image-build-log.ts';
import { parseBuild, type ImageBuildEvent } from './image-build-record.ts';
import { BUILD_ID as ID, WIRE_BUILD as DONE } from './testing/build-record.ts';
import { errorBody, LoopbackServer, sendJson } from './testing/loopback-server.ts';
import { untilRejected } from './testing/virtual-time.ts';
import { CoppiceError } from './transport/errors.ts';
import type { Transport } from './transport/transport.ts';

const LOG = `/v1/images/builds/${ID}/log`;
const HOUR_MS = 3_600_000;
const RUNNING = { ...DONE, status: 'running', image: null, size_bytes: null, steps_done: 1, ended_at: null };
const EVENTS = [
  { type: 'step', seq: 1, step: 0, text: 'RUN a', cached: false },
  { type: 'stdout', seq: 2, step: 0, data: 'a\n' },
  { type: 'stdout', seq: 3, step: 0, data: 'b\n' },
  { type: 'end', seq: 4, build: DONE },
];

type Log = (response: ServerResponse) => void;

const frame = (event: object): string => `data: ${JSON.stringify(event)}\n\n`;

/** Sends events and closes the answer in good order, as a service does that stops. */
const closed = (from: number, to: number): Log => ending(EVENTS.slice(from, to).map(frame).join(''));

const ending =
  (text: string): Log =>
  (response) =>
    void response.writeHead(200, { 'content-type': 'text/event-stream' }).end(text);

/** Sends events, and then the connection breaks. */
const broken =
  (from: number, to: number): Log =>
  (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(EVENTS.slice(from, to).map(frame).join(''), () => response.destroy());
  };

/** Answers each request for the log with the next of these, and each for the record with the next of those; the last stays. */
function serviceWith(logs: readonly Log[], records: readonly object[] = [RUNNING]): Promise<LoopbackServer> {
  const left = [...logs];
  const leftRecords = [...records];
  return LoopbackServer.start(({ url }, response) => {
    if (url.includes('/log')) left.shift()?.(response);
    else sendJson(response, { body: leftRecords.length > 1 ? leftRecords.shift() : leftRecords[0] });
  });
}

async function read(server: LoopbackServer, after?: number): Promise<ImageBuildEvent[]> {
  const events: ImageBuildEvent[] = [];
  for await (const event of server.client().builds.follow(ID, { after })) events.push(event);
  return events;
}

const logsRead = (server: LoopbackServer): string[] =>
  server.seen.map(({ url }) => url).filter((url) => url.includes('/log'));

const SHOWN = [...EVENTS.slice(0, 3), { type: 'end', seq: 4, build: parseBuild(DONE) }];

test('after a lost connection the log continues after its last event: nothing is repeated, nothing left out', async () => {
  await using server = await serviceWith([broken(0, 2), broken(2, 2), closed(2, 3), closed(3, 4)]);
  assert.deepEqual(await read(server), SHOWN);
  assert.deepEqual(
    logsRead(server),
    [0, 2, 2, 3].map((after) => `${LOG}?after=${after}`),
  );
});

test('a log can be read from any event on', async () => {
  await using server = await serviceWith([closed(2, 4)]);
  assert.deepEqual(await read(server, 2), SHOWN.slice(2));
  assert.deepEqual(logsRead(server), [`${LOG}?after=2`]);
});

test('a log without an end is ended by the record of the build, after the events that came meanwhile', async () => {
  await using server = await serviceWith([closed(0, 1), closed(1, 3), closed(0, 0)], [RUNNING, DONE]);
  assert.deepEqual(await read(server), SHOWN);
  // The build runs after the first, it has ended after the second; the third finds no more events.
  assert.deepEqual(
    logsRead(server),
    [0, 1, 3].map((after) => `${LOG}?after=${after}`),
  );
});

test('the end of the log counts, and not the record, if it comes after all', async () => {
  await using server = await serviceWith([closed(0, 3), closed(3, 4)], [DONE]);
  assert.deepEqual(await read(server), SHOWN);
});

test('an error in the middle of the log is that of the service, and after a restart the log continues', async () => {
  const { error } = errorBody('unavailable', 'the service is restarting');
  const restart = ending(
    `${frame(EVENTS[0] ?? {})}${frame({ type: 'error', data: error['message'], error })}`,
  );
  await using server = await serviceWith([restart, closed(1, 4)]);
  assert.deepEqual(await read(server), SHOWN);
  const revoked = { type: 'error', ...errorBody('unauthorized', 'the key was revoked') };
  await using other = await serviceWith([ending(frame(revoked))]);
  await assert.rejects(read(other), { code: 'unauthorized', detail: 'the key was revoked' });
  assert.equal(other.seen.length, 1);
});

test('a refused log and a log of another shape are errors at once', async () => {
  await using server = await LoopbackServer.answering(404, errorBody('not_found', 'no such build'));
  await assert.rejects(read(server), { code: 'not_found' });
  assert.equal(server.seen.length, 1);
  for (const text of ['data: no JSON\n\n', frame({ type: 'note', seq: 1 }), frame({ type: 'end', seq: 1 })]) {
    await using wrong = await serviceWith([ending(text)]);
    await assert.rejects(read(wrong), { code: 'invalid_response', message: /invalid log of a build/u });
  }
});

test('an event of 64 KiB of control characters, which JSON makes six times as long, is read', async () => {
  const data = '\u0001'.repeat(64 << 10);
  const event = { type: 'stdout', seq: 1, step: 0, data };
  assert.ok(frame(event).length > 6 * data.length);
  await using server = await serviceWith([
    ending(frame(event) + frame({ type: 'end', seq: 2, build: DONE })),
  ]);
  const [first] = await read(server);
  assert.deepEqual(first, event);
});

test('an abort ends the wait for another attempt with its reason', async () => {
  await using server = await serviceWith([closed(0, 1), closed(1, 1)]);
  const controller = new AbortController();
  const log = server.client().builds.follow(ID, { signal: controller.signal });
  assert.equal((await log.next()).value?.type, 'step');
  const next = log.next();
  controller.abort(new Error('enough'));
  await assert.rejects(next, { message: 'enough' });
});

test('attempts without a new event are bounded', async () => {
  let attempts = 0;
  const lost = (): Promise<never> => {
    attempts += 1;
    return Promise.reject(new CoppiceError('lost', { status: 0, code: 'connection_refused' }));
  };
  const transport = { timeoutMs: 1, callStream: lost } as unknown as Transport;
  const { error } = await untilRejected(HOUR_MS, (signal) =>
    followBuildLog(transport, LOG, { get: lost, signal }).next(),
  );
  assert.equal((error as CoppiceError).code, 'connection_refused');
  assert.equal(attempts, 9);
});

test('the time that the record of the build takes is no progress', async () => {
  await using server = await LoopbackServer.start(({ url }, response) => {
    if (url.includes('/log')) closed(0, 0)(response);
  });
  const client = server.client({ timeoutMs: 20_000 });
  const { error } = await untilRejected(HOUR_MS, (signal) => client.builds.follow(ID, { signal }).next());
  assert.equal((error as CoppiceError).code, 'timeout');
});

test('a stream that lasted without an event begins a new series of attempts', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(':\n\n');
    setTimeout(() => response.destroy(), 30_000);
  });
  await assert.rejects(
    untilRejected(HOUR_MS, (signal) => server.client().builds.follow(ID, { signal }).next()),
    { message: `it is not rejected within ${HOUR_MS} ms` },
  );
  assert.ok(server.seen.length > 20, `${server.seen.length} requests`);
});

// The last one: after it, `fetch` of Node.js 20 waits for a timer of the virtual time.
test('a host that accepts connections and never answers is given up, although each attempt takes long', async () => {
  await using server = await LoopbackServer.start(() => undefined);
  const client = server.client({ timeoutMs: 20_000 });
  const { error, tookMs } = await untilRejected(HOUR_MS, (signal) =>
    client.builds.follow(ID, { signal }).next(),
  );
  assert.equal((error as CoppiceError).code, 'timeout');
  // Nine attempts of 20 s, and the waits between them.
  assert.ok(tookMs > 180_000 && tookMs < 240_000, `${tookMs} ms`);
  assert.ok(server.seen.length > 0);
});
