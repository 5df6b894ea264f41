import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WebSocket as WsWebSocket } from 'ws';
import { CoppiceError } from '../transport/errors.ts';
import { SANDBOX_ID, TEST_KEY } from '../testing/loopback-server.ts';
import { LoopbackSockets, type ServicePeer } from '../testing/loopback-sockets.ts';
import { within } from '../testing/within.ts';

const out = (data: string) => ({ type: 'stdout', data });
const err = (data: string) => ({ type: 'stderr', data });
const exit = (data: string) => ({ type: 'exit', data, timed_out: false });
const ERROR = { code: 'guest_unreachable', message: 'the sandbox was lost', request_id: 'req1' };

/** Behaves like a standard WebSocket, which cannot be paused. */
class UnpausableWebSocket extends WsWebSocket {}
Object.defineProperty(UnpausableWebSocket.prototype, 'pause', { value: undefined });

async function readAll(command: AsyncIterable<{ data: string }>): Promise<string> {
  let text = '';
  for await (const { data } of command) text += data;
  return text;
}

/** Starts a service that reads the request and then sends nothing. */
async function startQuiet(): Promise<{ service: LoopbackSockets; peer: Promise<ServicePeer> }> {
  let found: (peer: ServicePeer) => void;
  const peer = new Promise<ServicePeer>((resolve) => (found = resolve));
  const service = await LoopbackSockets.start(async (opened) => {
    await opened.next();
    found(opened);
  });
  return { service, peer };
}

test('a spawned command yields its output in order, and both the loop and wait() return its result', async () => {
  let request: unknown;
  await using service = await LoopbackSockets.start(async (peer) => {
    request = await peer.next();
    peer.end(out('a\n'), { type: 'news', data: 'of a later service' }, err('ß'), exit('3'));
  });
  const env = { someName: '1' };
  const command = await service
    .sandbox()
    .spawn('make', { timeout: 5, cwd: '/tmp', env, user: 'node', signal: new AbortController().signal });
  const ended = command.wait();
  const items = command[Symbol.asyncIterator]();
  assert.deepEqual((await items.next()).value, out('a\n'));
  assert.deepEqual((await items.next()).value, err('ß'));
  assert.deepEqual(await items.next(), { done: true, value: { exitCode: 3, timedOut: false } });
  assert.deepEqual(await ended, { exitCode: 3, timedOut: false });
  assert.deepEqual(request, { command: 'make', timeout: 5, cwd: '/tmp', env, user: 'node' });
});

test('each WebSocket uses its own ticket, and no address includes the key', async () => {
  await using service = await LoopbackSockets.start(async (peer) => {
    await peer.next();
    peer.end(exit('0'));
  });
  for (let round = 0; round < 2; round += 1) await (await service.sandbox().spawn('true')).wait();
  const path = `/v1/runs/${SANDBOX_ID}/exec/ws?ticket=tick%20et%26`;
  assert.deepEqual(service.upgrades, [`${path}1`, `${path}2`]);
  for (const { url, headers } of service.seen) {
    assert.equal(url.includes(TEST_KEY), false);
    assert.equal(headers.authorization, `Bearer ${TEST_KEY}`);
  }
});

test('standard input is sent in pieces that end between characters, for any chunks of the caller', async () => {
  const messages: { type: string; data?: string }[] = [];
  await using service = await LoopbackSockets.start(async (peer) => {
    await peer.next();
    do messages.push((await peer.next()) as { type: string; data?: string });
    while (messages.at(-1)?.type !== 'stdin_eof');
    peer.end(exit('0'));
  });
  const command = await service.sandbox().spawn('cat');
  const text = `${'😀'.repeat(70_000)}\uFEFFend`;
  const bytes = Buffer.from(text);
  const odd = 'x'.repeat(65_535);
  void command.stdin.write(bytes.subarray(0, 5));
  void command.stdin.write(bytes.subarray(5));
  await command.stdin.write(`${odd}${text}`);
  await command.stdin.end();
  await command.stdin.end();
  await command.wait();
  assert.equal(messages.map(({ data }) => data ?? '').join(''), `${text}${odd}${text}`);
  for (const { data = '' } of messages) {
    assert.ok(data.length <= 65_536);
    assert.doesNotMatch(data, /^[\udc00-\udfff]|[\ud800-\udbff]$/);
  }
});

test('bytes that are not UTF-8, and half a character at the end, are refused', async () => {
  const { service, peer } = await startQuiet();
  await using _ = service;
  await using command = await service.sandbox().spawn('cat');
  await assert.rejects(command.stdin.write(new Uint8Array([0xff])), { name: 'TypeError', message: /UTF-8/ });
  await command.stdin.write(Buffer.from('é').subarray(0, 1));
  await assert.rejects(command.stdin.end(), TypeError);
  await command.stdin.end();
  await assert.rejects(command.stdin.write('more'), TypeError);
  assert.deepEqual(await (await peer).next(), { type: 'stdin_eof' });
});

test('writing waits while the service accepts no input, and fails after the time limit', async () => {
  const { service, peer } = await startQuiet();
  await using _ = service;
  await using command = await service.sandbox({ timeoutMs: 300 }).spawn('cat', { timeout: 0.2 });
  (await peer).socket.pause();
  const chunk = 'x'.repeat(2 ** 20);
  let written = 0;
  const fill = async (): Promise<void> => {
    for (; written < 64; written += 1) await command.stdin.write(chunk);
  };
  await assert.rejects(within(10_000, fill(), 'writing never ends'), { code: 'timeout' });
  assert.ok(written < 64);
  await assert.rejects(command.stdin.write('after the hole'), { code: 'timeout' });
});

test('kill sends the signal by its name, and nothing once the command has ended', async () => {
  const { service, peer } = await startQuiet();
  await using _ = service;
  const command = await service.sandbox().spawn('sleep 60');
  command.kill();
  command.kill('SIGINT');
  assert.throws(() => command.kill('9'), TypeError);
  const opened = await peer;
  assert.deepEqual(await opened.next(), { type: 'signal', signal: 'TERM' });
  assert.deepEqual(await opened.next(), { type: 'signal', signal: 'SIGINT' });
  opened.end(exit('143'));
  assert.deepEqual(await command.wait(), { exitCode: 143, timedOut: false });
  command.kill();
  await command.stdin.end();
  await assert.rejects(command.stdin.write('late'), { code: 'closed' });
});

test('an abort closes the connection and rejects with the reason of the signal, also before it opens', async () => {
  const { service, peer } = await startQuiet();
  await using _ = service;
  const controller = new AbortController();
  const command = await service.sandbox().spawn('sleep 60', { signal: controller.signal });
  const opened = await peer;
  opened.send(out('unread'));
  const reason = new Error('no longer wanted');
  const reading = readAll(command);
  const waiting = command.wait();
  controller.abort(reason);
  await assert.rejects(waiting, reason);
  await assert.rejects(reading, reason);
  assert.equal(await opened.left(), 1000);
  const late = service.sandbox().spawn('sleep 60', { signal: controller.signal });
  await assert.rejects(late, reason);
});

test('close and the end of a block close the connection, and waiting and reading then reject', async () => {
  for (const leave of ['close', 'dispose']) {
    const { service, peer } = await startQuiet();
    await using _ = service;
    const command = await service.sandbox().spawn('sleep 60');
    const waiting = command.wait();
    if (leave === 'close') await command.close();
    else await command[Symbol.asyncDispose]();
    await assert.rejects(waiting, { code: 'closed' });
    await assert.rejects(readAll(command), { code: 'closed' });
    assert.equal(await (await peer).left(), 1000);
    await command.close();
  }
});

test('a new loop continues where the last one stopped', async () => {
  const { service, peer } = await startQuiet();
  await using _ = service;
  await using command = await service.sandbox().spawn('server');
  const opened = await peer;
  opened.send(out('starting'), out('ready'), out('more'));
  for await (const { data } of command) if (data === 'ready') break;
  opened.end(exit('0'));
  assert.equal(await readAll(command), 'more');
  assert.equal(await readAll(command), '');
});

test('a close without an exit frame is an error with its code and reason, after the earlier output', async () => {
  const expected = { 1006: 'connection_failed', 1011: 'connection_failed', 1012: 'unavailable' };
  for (const [close, code] of Object.entries(expected)) {
    await using service = await LoopbackSockets.start(async (peer) => {
      await peer.next();
      peer.send(out('y'));
      if (close === '1006') peer.socket.terminate();
      else peer.socket.close(Number(close), 'that is why');
    });
    const command = await service.sandbox().spawn('x');
    const seen: string[] = [];
    const read = async (): Promise<void> => {
      for await (const { data } of command) seen.push(data);
    };
    await assert.rejects(read(), (error) => {
      assert.ok(error instanceof CoppiceError);
      assert.equal(error.code, code);
      assert.match(error.message, close === '1006' ? /exec\/ws/ : new RegExp(`${close} \\(that is why\\)`));
      return true;
    });
    assert.deepEqual(seen, ['y']);
    await assert.rejects(command.wait(), { code });
    await assert.rejects(command.stdin.write('x'), { code });
  }
});

test('an error frame is an error with the service’s code', async () => {
  await using service = await LoopbackSockets.start(async (peer) => {
    await peer.next();
    peer.send(out('y'), { type: 'error', data: ERROR.message, error: ERROR });
    peer.socket.close(1011, ERROR.message);
  });
  const command = await service.sandbox().spawn('x');
  await assert.rejects(command.wait(), (error) => {
    assert.ok(error instanceof CoppiceError);
    assert.deepEqual([error.code, error.detail, error.requestId], [ERROR.code, ERROR.message, 'req1']);
    return true;
  });
});

test('an invalid message ends the connection', async () => {
  const unusable: ((peer: ServicePeer) => void)[] = [
    (peer) => peer.socket.send('no JSON'),
    (peer) => peer.send({ type: 'stdout' }),
  ];
  for (const send of unusable) {
    const { service, peer } = await startQuiet();
    await using _ = service;
    const command = await service.sandbox().spawn('x');
    send(await peer);
    await assert.rejects(command.wait(), { code: 'invalid_response' });
    await (await peer).left();
  }
});

test('a service that stays silent for longer than the command may take causes a timeout', async () => {
  const { service, peer } = await startQuiet();
  await using _ = service;
  const command = await service.sandbox({ timeoutMs: 200 }).spawn('x', { timeout: 0.1 });
  await assert.rejects(command.wait(), { code: 'timeout' });
  await (await peer).left();
});

test('a WebSocket that can be paused makes the command wait for a slow reader', async () => {
  const { service, peer } = await startQuiet();
  await using _ = service;
  const command = await service.sandbox({ WebSocket: WsWebSocket }).spawn('yes');
  const { socket } = await peer;
  const text = 'x'.repeat(2 ** 20);
  const items = command[Symbol.asyncIterator]();
  let sent = 0;
  const deadline = Date.now() + 10_000;
  // Sends until the kernel accepts no more data.
  for (let held = 0; held < 20 && Date.now() < deadline; held += 1) {
    if (socket.bufferedAmount === 0) {
      socket.send(JSON.stringify(out(text)));
      sent += 1;
      held = 0;
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assert.ok(socket.bufferedAmount > 0, 'the service never has to wait');
  assert.ok(sent < 60, `${sent} MiB were taken in`);
  socket.send(JSON.stringify(exit('0')));
  let length = 0;
  let next = await items.next();
  for (; next.done !== true; next = await items.next()) length += next.value.data.length;
  assert.equal(length, sent * text.length);
});

test('a standard WebSocket of a slow reader is closed at 64 MiB, and the error gives advice', async () => {
  const { service, peer } = await startQuiet();
  await using _ = service;
  const command = await service.sandbox({ WebSocket: UnpausableWebSocket }).spawn('yes');
  const items = command[Symbol.asyncIterator]();
  const first = items.next();
  const opened = await peer;
  const text = 'x'.repeat(2 ** 20);
  for (let count = 0; count < 70; count += 1) opened.send(out(text));
  await first;
  await opened.left();
  let read = 1;
  const readRest = async (): Promise<void> => {
    for (; (await items.next()).done !== true;) read += 1;
  };
  await assert.rejects(readRest(), { code: 'reader_too_slow', message: /stream\(\)/ });
  assert.ok(read >= 60 && read <= 66, `${read} MiB were kept`);
});

test('wait() needs no reader: unread output is dropped, and reading it later is an error', async () => {
  for (const WebSocket of [WsWebSocket, UnpausableWebSocket]) {
    const { service, peer } = await startQuiet();
    await using _ = service;
    const command = await service.sandbox({ WebSocket }).spawn('yes');
    const opened = await peer;
    const waiting = command.wait();
    const text = 'x'.repeat(2 ** 20);
    for (let count = 0; count < 70; count += 1) opened.send(out(text));
    opened.end(exit('0'));
    assert.deepEqual(await within(20_000, waiting, 'no end'), { exitCode: 0, timedOut: false });
    await assert.rejects(readAll(command), { code: 'reader_too_slow' });
  }
});

test('spawn refuses invalid arguments, and the message names the use of standard input', async () => {
  const { service } = await startQuiet();
  await using _ = service;
  const sandbox = service.sandbox();
  await assert.rejects(sandbox.spawn('x', { stdin: 'in' } as object), /stdin of the result/);
  await assert.rejects(sandbox.spawn('x', { timeoutMs: 5 } as object), /timeoutMs/);
  assert.deepEqual(service.seen, []);
  await assert.rejects(sandbox.spawn('x', { env: { a: 'ä'.repeat(2 ** 20) } }), /2097\d+ bytes/);
});
