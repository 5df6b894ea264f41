/** Layers of hostile guests: whatever their agent sends, the runner ends with an error or with what it said is whole. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2, { type ClientHttp2Session, type ServerHttp2Stream } from 'node:http2';
import { connect, type AddressInfo, type Server } from 'node:net';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import { readGuestLayer, type GuestPace } from './guest-layer.ts';

let answer: (stream: ServerHttp2Stream) => void;
let agent: ClientHttp2Session;
const guest = http2.createServer();
guest.on('stream', (stream) => {
  stream.on('error', () => undefined);
  stream.resume();
  answer(stream);
});

before(async () => {
  guest.on('session', (session) => session.on('error', () => undefined));
  guest.listen(0, '127.0.0.1');
  await once(guest, 'listening');
  const { port } = (guest as unknown as Server).address() as AddressInfo;
  agent = http2.connect('http://x', { createConnection: () => connect(port, '127.0.0.1') });
  agent.on('error', () => undefined);
  await once(agent, 'connect');
});
after(() => {
  agent.destroy();
  guest.close();
});

async function read(signal = AbortSignal.timeout(20_000), pace?: GuestPace): Promise<string> {
  const session = {
    request: (headers: http2.OutgoingHttpHeaders) => agent.request(headers, { endStream: false }),
  };
  const chunks: Buffer[] = [];
  for await (const chunk of readGuestLayer(session, signal, pace)) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

function sendWith(outcome: string | undefined): (stream: ServerHttp2Stream) => void {
  return (stream) => {
    stream.respond({ ':status': 200 }, { waitForTrailers: true });
    stream.once('wantTrailers', () =>
      outcome === undefined ? stream.close() : stream.sendTrailers({ 'layer-outcome': outcome }),
    );
    stream.end('archive');
  };
}

async function refused(code: AppError['code'], pattern: RegExp, work = read()): Promise<void> {
  await assert.rejects(work, (error) => {
    assert(error instanceof AppError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, pattern);
    return true;
  });
}

test('a layer is read only if its guest says at the end that it is whole', async () => {
  answer = sendWith('whole');
  assert.equal(await read(), 'archive');
  answer = sendWith('etc/.wh.x: remove it');
  await refused('invalid_state', /cannot become an image: etc\/\.wh\.x: remove it/u);
  answer = sendWith(undefined);
  await refused('guest_unreachable', /to their end/u);
});

test('a guest that refuses, breaks off or answers nonsense gives an error', async () => {
  answer = (stream) => {
    stream.respond({ ':status': 409 });
    stream.end(JSON.stringify({ error: { code: 'x', message: 'the programs cannot be frozen' } }));
  };
  await refused('invalid_state', /the programs cannot be frozen/u);
  answer = (stream) => {
    stream.respond({ ':status': 200 });
    stream.write('part', () => stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR));
  };
  await refused('guest_unreachable', /to their end/u);
  answer = (stream) => {
    stream.respond({ ':status': 500 });
    stream.end('x'.repeat(1 << 20));
  };
  await refused('invalid_state', /gave no reason/u);
});

test('a caller that leaves does not wait for a silent guest', async () => {
  answer = (stream) => stream.respond({ ':status': 200 });
  await assert.rejects(read(AbortSignal.timeout(200)), { name: 'TimeoutError' });
});

test('a guest that sends a byte now and then is given up, and one that sends enough is not', async () => {
  const pace = { silenceMs: 10_000, graceMs: 300, bytesPerSecond: 1000 };
  const sendEvery20Ms = (bytes: number): void => {
    answer = (stream) => {
      stream.respond({ ':status': 200 });
      const sending = setInterval(() => stream.write('x'.repeat(bytes)), 20);
      stream.once('close', () => clearInterval(sending));
    };
  };
  sendEvery20Ms(1);
  await refused('guest_unreachable', /too slow: it sent \d+ bytes/u, read(undefined, pace));
  sendEvery20Ms(1000);
  await assert.rejects(read(AbortSignal.timeout(2000), pace), { name: 'TimeoutError' });
});

test('a guest that is silent, or that refuses a byte at a time, is given up', async () => {
  const pace = { silenceMs: 200, graceMs: 10_000, bytesPerSecond: 1 };
  answer = () => undefined;
  await refused('guest_unreachable', /to their end/u, read(undefined, pace));
  answer = (stream) => stream.respond({ ':status': 200 });
  await refused('guest_unreachable', /to their end/u, read(undefined, pace));
  answer = (stream) => {
    stream.respond({ ':status': 500 });
    const sending = setInterval(() => stream.write('x'), 20);
    stream.once('close', () => clearInterval(sending));
  };
  await refused('guest_unreachable', /to their end/u, read(undefined, pace));
});

test('the time that the reader takes does not count as time of the guest', async () => {
  const pace = { silenceMs: 10_000, graceMs: 100, bytesPerSecond: 1000 };
  answer = (stream) => {
    stream.respond({ ':status': 200 }, { waitForTrailers: true });
    stream.once('wantTrailers', () => stream.sendTrailers({ 'layer-outcome': 'whole' }));
    stream.write('a');
    setTimeout(() => stream.end('b'), 50);
  };
  const session = {
    request: (headers: http2.OutgoingHttpHeaders) => agent.request(headers, { endStream: false }),
  };
  const chunks: Buffer[] = [];
  for await (const chunk of readGuestLayer(session, AbortSignal.timeout(20_000), pace)) {
    chunks.push(chunk);
    await delay(300);
  }
  assert.equal(Buffer.concat(chunks).toString(), 'ab');
});

test('what a guest says becomes part of an error without control characters, and cut', async () => {
  answer = (stream) => {
    stream.respond({ ':status': 409 });
    stream.end('{"message": "a\\u0000b\\u001b[2J\\ud800c"}');
  };
  await refused('invalid_state', /cannot be read: a\u{FFFD}b\u{FFFD}\[2J\u{FFFD}c$/u);
  answer = sendWith(`\u0085${'x'.repeat(2000)}`);
  await refused('invalid_state', /image: \u{FFFD}x{499}$/u);
});
