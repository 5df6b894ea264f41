import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2, { type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import { encodeFrame, FRAME, type Frame } from '../../lib/protocol/frames.ts';
import { GuestStream } from './guest-stream.ts';

const TIMEOUT = { timeout: 10_000 };

/** Opens a stream to a runner, which answers with `frames` and leaves the stream open. */
async function open(t: TestContext, frames: readonly Buffer[]) {
  const server = http2.createServer();
  const sessions: ServerHttp2Session[] = [];
  const streams: ServerHttp2Stream[] = [];
  server.on('session', (session) => {
    sessions.push(session);
    session.on('error', () => undefined);
  });
  server.on('stream', (stream) => {
    streams.push(stream);
    stream.on('error', () => undefined);
    stream.respond({ ':status': 200 });
    for (const frame of frames) stream.write(frame);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = http2.connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  client.on('error', () => undefined);
  t.after(() => {
    client.destroy();
    server.close();
  });
  const request = async (body: NodeJS.ReadableStream) => {
    const stream = client.request({ ':method': 'POST', ':path': '/' });
    stream.on('error', () => undefined);
    body.pipe(stream);
    const [headers] = (await once(stream, 'response')) as [http2.IncomingHttpHeaders];
    return { status: 200, headers, stream };
  };
  const stream = await GuestStream.open({ request, first: [] });
  return { stream, runner: sessions[0]!, far: streams[0]!, client };
}

const isExit = ({ type }: Frame): boolean => type === FRAME.exit;

test(
  'a command that a runner cuts off as it stops continues, and is not said to be lost',
  TIMEOUT,
  async (t) => {
    const { stream, runner, far, client } = await open(t, [encodeFrame(FRAME.stdout, Buffer.from('one'))]);
    const frames = stream.frames(isExit);
    assert.equal(String((await frames.next()).value?.payload), 'one');
    const left = once(client, 'goaway');
    runner.close();
    await left;
    const next = frames.next();
    // Only this stream ends, as in the moment before the connection does.
    far.close(http2.constants.NGHTTP2_CANCEL);
    await assert.rejects(next, { code: 'unavailable', message: /the process continues/u });
  },
);

test(
  'an exit that has come counts, although the connection was lost before it was read',
  TIMEOUT,
  async (t) => {
    const exit = encodeFrame(FRAME.exit, Buffer.from('{}'));
    const { stream, runner, client } = await open(t, [encodeFrame(FRAME.stdout, Buffer.from('one')), exit]);
    const lost = once(client, 'close');
    runner.destroy();
    await lost;
    const types: number[] = [];
    for await (const { type } of stream.frames(isExit)) types.push(type);
    assert.deepEqual(types, [FRAME.stdout, FRAME.exit]);
  },
);
