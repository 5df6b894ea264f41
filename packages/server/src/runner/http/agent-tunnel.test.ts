import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import http2 from 'node:http2';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import { watchEnd } from '../../lib/streams/whole-stream.ts';
import { respondError } from './exchange.ts';
import { tunnelToAgent } from './agent-tunnel.ts';

/** `session` is the runner's side of the connection. */
type Agent = (stream: http2.ServerHttp2Stream, session: http2.ClientHttp2Session | undefined) => void;

interface Received {
  status: number;
  headers: http2.IncomingHttpHeaders;
  body: Buffer;
  /** The stream ended and was not reset. */
  isWhole: boolean;
}

async function listen(
  onStream: (stream: http2.ServerHttp2Stream) => void,
  undo: AsyncDisposableStack,
): Promise<http2.ClientHttp2Session> {
  const server = http2.createServer();
  server.on('stream', (stream) => {
    stream.on('error', () => undefined);
    onStream(stream);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  undo.defer(() => void server.close());
  const session = http2.connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  session.on('error', () => undefined);
  undo.defer(() => session.destroy());
  return session;
}

/** Sends a request of control to a fake agent. `taken` resolves when the request has reached the agent. */
async function openTunnel(
  agent: Agent,
  head: http2.OutgoingHttpHeaders,
  undo: AsyncDisposableStack,
): Promise<{ stream: http2.ClientHttp2Stream; taken: Promise<void> }> {
  const { promise: taken, resolve: noteTaken } = Promise.withResolvers<void>();
  let guest: http2.ClientHttp2Session | undefined = undefined;
  guest = await listen((stream) => {
    agent(stream, guest);
    noteTaken();
  }, undo);
  const session = {
    request: (headers: http2.OutgoingHttpHeaders) => guest.request(headers, { endStream: false }),
  };
  const control = await listen((stream) => {
    tunnelToAgent(stream, session, { method: 'GET', path: '/files', headers: {} }).catch((error: unknown) =>
      respondError(stream, error instanceof AppError ? error : new AppError('internal', String(error))),
    );
  }, undo);
  return { stream: control.request(head), taken };
}

/** Sends a request and returns the answer that control receives. */
async function ask(
  agent: Agent,
  onData: () => void = () => undefined,
  head: http2.OutgoingHttpHeaders = { ':path': '/' },
): Promise<Received> {
  await using undo = new AsyncDisposableStack();
  const { stream } = await openTunnel(agent, head, undo);
  stream.once('data', onData);
  return await receive(stream);
}

async function receive(stream: http2.ClientHttp2Stream): Promise<Received> {
  const chunks: Buffer[] = [];
  let headers: http2.IncomingHttpHeaders = {};
  let hasEnded = false;
  const endsByItself = watchEnd(stream);
  stream.on('response', (head) => (headers = head));
  stream.on('data', (chunk: Buffer) => chunks.push(chunk));
  stream.on('end', () => {
    hasEnded = endsByItself();
    stream.end();
  });
  stream.on('error', () => undefined);
  await new Promise((resolve) => stream.once('close', resolve));
  return {
    status: Number(headers[':status'] ?? 0),
    headers,
    body: Buffer.concat(chunks),
    isWhole: hasEnded,
  };
}

const PART = Buffer.alloc(10_000, 'x');

test('an answer that the agent breaks off never looks complete', { timeout: 10_000 }, async () => {
  const breaks: Agent[] = [
    (stream) => stream.destroy(new Error('broken')),
    (stream) => stream.session?.destroy(),
    (_, session) => session?.destroy(),
  ];
  for (const [index, broken] of breaks.entries()) {
    for (const isAtOnce of [true, false]) {
      const { promise: received, resolve: noteReceived } = Promise.withResolvers<void>();
      const agent: Agent = (stream, session) => {
        stream.respond({ ':status': 200 });
        stream.write(PART);
        if (isAtOnce) broken(stream, session);
        else void received.then(() => broken(stream, session));
      };
      const { status, isWhole } = await ask(agent, noteReceived);
      assert.equal(
        isWhole && status === 200,
        false,
        `case ${index}, ${isAtOnce ? 'at once' : 'after the first part'}`,
      );
    }
  }
});

test('an answer without a length arrives complete', async () => {
  const { status, body, isWhole, headers } = await ask((stream) => {
    stream.respond({ ':status': 200 });
    stream.end(PART);
  });
  assert.deepEqual({ status, size: body.length, isWhole }, { status: 200, size: PART.length, isWhole: true });
  assert.equal(headers['content-length'], undefined);
});

test('an answer that ends while its request is open is complete', { timeout: 10_000 }, async () => {
  // Go's server does this when a handler returns before it has read the body.
  const agent: Agent = (stream) => {
    stream.respond({ ':status': 200 });
    stream.end(PART, () => stream.close(http2.constants.NGHTTP2_NO_ERROR));
  };
  const { body, isWhole } = await ask(agent, undefined, { ':path': '/', ':method': 'POST' });
  assert.deepEqual({ size: body.length, isWhole }, { size: PART.length, isWhole: true });
});

test('an upload may take any time while the guest keeps reading it', { timeout: 10_000 }, async (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  await using undo = new AsyncDisposableStack();
  const pieces = new EventEmitter();
  const { stream } = await openTunnel(
    (upload) => {
      upload.on('data', () => pieces.emit('taken'));
      upload.on('end', () => {
        upload.respond({ ':status': 200 });
        upload.end('done');
      });
    },
    { ':path': '/', ':method': 'PUT' },
    undo,
  );
  const answer = receive(stream);
  for (let piece = 0; piece < 5; piece += 1) {
    const taken = once(pieces, 'taken');
    stream.write(PART);
    await taken;
    context.mock.timers.tick(50_000);
  }
  stream.end();
  assert.equal((await answer).status, 200);
});

test(
  'an upload that the guest does not read fails after the deadline',
  { timeout: 10_000 },
  async (context) => {
    context.mock.timers.enable({ apis: ['setTimeout'] });
    await using undo = new AsyncDisposableStack();
    const { stream, taken } = await openTunnel(() => undefined, { ':path': '/', ':method': 'PUT' }, undo);
    const answer = receive(stream);
    await taken;
    context.mock.timers.tick(60_000);
    assert.equal((await answer).status, 502);
  },
);

test('an agent that breaks off before its answer is reported unreachable', async () => {
  const breaks: Agent[] = [
    (stream) => stream.destroy(new Error('broken')),
    (stream) => stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR),
    (stream) => stream.close(http2.constants.NGHTTP2_CANCEL),
    (stream) => stream.session?.destroy(),
    (_, session) => session?.destroy(),
  ];
  for (const [index, broken] of breaks.entries()) {
    const { status, body } = await ask(broken);
    assert.equal(status, 502, `case ${index}`);
    assert.match(body.toString(), /guest_unreachable/u);
  }
});

test('nothing is asked of the agent for a caller who has left', async () => {
  await using undo = new AsyncDisposableStack();
  const asked = Promise.withResolvers<number>();
  const client = await listen((stream) => {
    stream.once('close', () => {
      let requests = 0;
      const session = {
        request: (): never => {
          requests += 1;
          throw new Error('asked');
        },
      };
      const tunnel = tunnelToAgent(stream, session, { method: 'GET', path: '/files', headers: {} });
      tunnel.catch(() => undefined).finally(() => asked.resolve(requests));
    });
  }, undo);
  const stream = client.request({ ':path': '/' });
  stream.on('error', () => undefined);
  stream.close(http2.constants.NGHTTP2_CANCEL);
  assert.equal(await asked.promise, 0);
});

test('only statuses of the protocol and codes that an agent may use are passed on', async () => {
  const answers: [status: number, body: string, expected: [status: number, code: string]][] = [
    [204, '', [502, 'guest_unreachable']],
    [302, '{}', [502, 'guest_unreachable']],
    [206, 'part', [502, 'guest_unreachable']],
    [416, '', [502, 'guest_unreachable']],
    [599, 'x'.repeat(100_000), [502, 'guest_unreachable']],
    [401, '{"code":"unauthorized","message":"m"}', [502, 'guest_unreachable']],
    [400, '{"code":"no_such_code","message":"m"}', [502, 'guest_unreachable']],
    [500, '{"code":"file_error","message":"m (EIO)"}', [400, 'file_error']],
    [404, '{"code":"file_not_found","message":"m"}', [404, 'file_not_found']],
    // An older agent has no such route.
    [404, '{"code":"not_found","message":"m"}', [409, 'agent_outdated']],
  ];
  for (const [status, text, expected] of answers) {
    const received = await ask((stream) => {
      stream.respond({ ':status': status, location: 'http://elsewhere' });
      stream.end(text);
    });
    const { error } = JSON.parse(received.body.toString()) as { error: { code: string } };
    assert.deepEqual([received.status, error.code], expected, `${status} ${text.slice(0, 40)}`);
    assert.equal(received.headers['location'], undefined);
  }
});
