/** Arbitrary agent answers, as far as the runner passes them on: the guest is at fault, and control keeps serving. */
import assert from 'node:assert/strict';
import type { ServerHttp2Stream } from 'node:http2';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { encodeFrame, FRAME } from '../../lib/protocol/frames.ts';
import { Bystander } from '../testing/bystander.ts';
import { startSpawnedHarness } from '../testing/control-harness.ts';
import { SocketClient } from '../testing/requests/socket-client.ts';

const RUNS = 300;
const SEED = 9009;
const FUZZ_MS = 60_000;
const DEADLINE_MS = 10_000;

let harness: Awaited<ReturnType<typeof startSpawnedHarness>>;
let bystander: Bystander;
let id = '';
before(async () => {
  harness = await startSpawnedHarness();
  bystander = await Bystander.open(harness);
  ({ id } = await harness.create());
});
after(() => harness[Symbol.asyncDispose]());

interface AgentAnswer {
  status: number;
  headers: Record<string, string>;
  body: Uint8Array;
  isReset: boolean;
  hasLength: boolean;
}

const json = fc.oneof(
  fc.constantFrom('', '{', 'null', '[]', '{"exit_code":0,"timed_out":false}', '{"exit_code":1e9}', '[{}]'),
  fc.constantFrom('{"path":"\\ud800","size":1}', '{"path":"a\\u0000","size":-1}', '{"path":1}'),
  fc.json(),
);
const frame = fc
  .tuple(fc.constantFrom(...Object.values(FRAME), 0, 99), fc.oneof(json, fc.string({ unit: 'binary' })))
  .map(([type, payload]) => encodeFrame(type, Buffer.from(payload)));
const body = fc.oneof(
  fc.array(frame, { maxLength: 4 }).map((frames) => Uint8Array.from(Buffer.concat(frames))),
  json.map((text) => Uint8Array.from(Buffer.from(text))),
  fc.uint8Array({ maxLength: 64 }),
);
const headers = fc.dictionary(
  fc.constantFrom('content-type', 'content-range', 'accept-ranges'),
  fc.constantFrom('', 'x', '99999999999999999', 'bytes 0-4/5', 'bytes */5', '\u00ff', 'a\tb'),
);
const agentAnswer: fc.Arbitrary<AgentAnswer> = fc.record({
  status: fc.constantFrom(200, 200, 200, 201, 204, 206, 304, 399, 416),
  headers,
  body,
  isReset: fc.boolean(),
  hasLength: fc.boolean(),
});

/** The runner does not pass on a length that differs from the body's (agent-tunnel.test.ts). */
function answerWith(
  { status, headers, body, isReset, hasLength }: AgentAnswer,
  stream: ServerHttp2Stream,
): void {
  const length = hasLength ? { 'content-length': body.length } : {};
  stream.resume();
  stream.respond({ ':status': status, ...headers, ...length });
  if (stream.writableEnded) return;
  if (isReset) stream.write(body, () => stream.destroy());
  else stream.end(body);
}

const path = (rest: string): string => `/v1/runs/${id}${rest}`;

/** Returns the status, or 0 when the answer breaks off. */
async function call(method: string, rest: string, options: object = {}): Promise<number> {
  const signal = AbortSignal.timeout(DEADLINE_MS);
  const response = await harness.fetch(method, path(rest), { ...options, signal });
  return response.text().then(
    () => response.status,
    () => {
      signal.throwIfAborted();
      return 0;
    },
  );
}

/** Returns 500 when the client receives an `internal` error, else 0. */
async function connect(rest: string, ...messages: unknown[]): Promise<number> {
  const client = new SocketClient<{ error?: { code: string } }>(harness, path(rest));
  await client.send(...messages).catch(() => undefined);
  await client.closed.catch(() => undefined);
  return client.received.some(({ error }) => error?.code === 'internal') ? 500 : 0;
}

const USES: (() => Promise<number>)[] = [
  () => call('POST', '/exec', { body: { command: 'x' } }),
  () => call('POST', '/exec/stream', { body: { command: 'x', stdin: 'in' } }),
  () => call('GET', '/files/download?path=/a'),
  () => call('HEAD', '/files/download?path=/a'),
  () => call('GET', '/files/download?path=/a', { headers: { range: 'bytes=0-4' } }),
  () => call('GET', '/files?path=/'),
  () => call('POST', '/files/upload?path=/a', { raw: 'content' }),
  () => call('GET', '/files/stat?path=/a'),
  () => call('POST', '/files/mkdir', { body: { path: '/a' } }),
  () => call('DELETE', '/files?path=/a'),
  () => call('GET', '/files/archive?path=/a'),
  () => call('GET', '/files/watch?path=/a'),
  () => call('PUT', '/files/archive?path=/a', { raw: 'content' }),
  () => call('GET', '/proxy/80/'),
  () => connect('/exec/ws', { command: 'x' }),
  () => connect('/shell', { type: 'shell_run', id: 'a', command: 'x' }),
  () => call('GET', '/ssh'),
  () => connect('/ssh/ws'),
  () => connect('/terminal', { type: 'resize', cols: 1, rows: 1 }),
];

test('no answer of an agent, however broken, is a fault of the service', async () => {
  const run = fc.asyncProperty(agentAnswer, fc.constantFrom(...USES), async (answer, use) => {
    harness.runner.onAgent = (of, stream) => {
      if (of === id) answerWith(answer, stream);
      return of === id;
    };
    const outcome = await use();
    harness.spawned.assertRunning();
    assert.notEqual(outcome, 500);
  });
  await fc.assert(run, { numRuns: RUNS, seed: SEED, endOnFailure: true, interruptAfterTimeLimit: FUZZ_MS });
  await bystander.assertUndisturbed();
  harness.spawned.assertRunning();
});
