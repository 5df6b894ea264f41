/**
 * A hostile agent's answers affect only its sandbox: the connection to control, which all sandboxes share, survives.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2, { type ClientHttp2Session, type ServerHttp2Stream } from 'node:http2';
import { connect, type AddressInfo, type Server } from 'node:net';
import { after, before, test } from 'node:test';
import { AppError, ERRORS } from '@coppice/contract';
import fc from 'fast-check';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import type { AgentSession } from '../agent-client/agent-session.ts';
import { tunnelToAgent } from './agent-tunnel.ts';
import { respondError } from './exchange.ts';

const RUNS = 500;
const SEED = 9119;
const FUZZ_MS = 60_000;
const DEADLINE_MS = 10_000;

interface Answer {
  status: number;
  headers: Record<string, string>;
  body: Uint8Array;
  /** `never`: the stream stays open. */
  end: 'end' | 'reset' | 'lost' | 'never';
}

let answer: Answer;
let agent: ClientHttp2Session;
let control: ClientHttp2Session;
const guest = http2.createServer();
const runner = http2.createServer();

guest.on('stream', (stream) => {
  stream.on('error', () => undefined);
  stream.resume();
  const { status, headers, body, end } = answer;
  stream.respond({ ':status': status, ...headers });
  if (stream.writableEnded) return;
  if (end === 'end') stream.end(body);
  else
    stream.write(body, () => {
      if (end === 'reset') stream.destroy();
      else if (end === 'lost') stream.session?.destroy();
    });
});
runner.on('stream', (stream: ServerHttp2Stream) => {
  stream.on('error', () => undefined);
  const session = {
    request: (headers: http2.OutgoingHttpHeaders) => agent.request(headers, { endStream: false }),
  } as unknown as AgentSession;
  tunnelToAgent(stream, session, { method: 'POST', path: '/exec', headers: {} }).catch((error: unknown) =>
    respondError(stream, error instanceof AppError ? error : new AppError('internal', String(error))),
  );
});

async function open(server: http2.Http2Server): Promise<ClientHttp2Session> {
  const { port } = (server as unknown as Server).address() as AddressInfo;
  const session = http2.connect('http://x', { createConnection: () => connect(port, '127.0.0.1') });
  session.on('error', () => undefined);
  await once(session, 'connect');
  return session;
}

before(async () => {
  for (const server of [guest, runner]) {
    server.on('session', (session) => session.on('error', () => undefined));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  }
  control = await open(runner);
  agent = await open(guest);
});
after(() => {
  control.destroy();
  agent.destroy();
  guest.close();
  runner.close();
});

/** Returns the status that control receives once the stream is over, or undefined if it is reset without an answer. */
async function ask(): Promise<number | undefined> {
  const stream = control.request({ ':method': 'POST' }, { endStream: false });
  const closed = Promise.withResolvers<undefined>();
  let status: number | undefined;
  stream.on('error', () => undefined);
  stream.once('response', (headers) => (status = headers[':status']));
  stream.resume().end('input');
  stream.once('close', () => closed.resolve(undefined));
  await withDeadline('the end of the stream', DEADLINE_MS, closed.promise, () => stream.destroy());
  return status;
}

const headers = fc.dictionary(
  fc.constantFrom('content-type', 'content-length', 'content-range', 'accept-ranges', 'x-other'),
  fc.constantFrom('', 'x', '0', '5', '-5', '99999999999999999', 'bytes 0-4/5', '\u00ff', 'a\tb', 'a\u0001b'),
);
const answers: fc.Arbitrary<Answer> = fc.record({
  status: fc.oneof(fc.constantFrom(200, 204, 206, 304, 416, 500), fc.integer({ min: 200, max: 599 })),
  headers,
  body: fc.uint8Array({ maxLength: 10 }),
  end: fc.constantFrom('end', 'end', 'reset', 'lost'),
});

test('no answer of an agent, however broken, breaks the connection to control', async () => {
  await fc.assert(
    fc.asyncProperty(answers, async (made) => {
      answer = made;
      if (agent.destroyed || agent.closed) agent = await open(guest);
      const status = await ask();
      assert.notEqual(status, 500, 'a fault of the runner');
      assert.equal(control.destroyed, false, 'the connection to control is lost');
      answer = { status: 200, headers: {}, body: Buffer.from('hello'), end: 'end' };
      if (agent.destroyed || agent.closed) agent = await open(guest);
      assert.equal(await ask(), 200, 'the next request');
    }),
    { numRuns: RUNS, seed: SEED, endOnFailure: true, interruptAfterTimeLimit: FUZZ_MS },
  );
});

test('a refusal that does not end is a fault of the agent', async () => {
  answer = { status: 500, headers: {}, body: Buffer.from('{'), end: 'never' };
  assert.equal(await ask(), ERRORS.guest_unreachable.status);
});
