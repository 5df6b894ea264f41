import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { SANDBOX_ID } from '../testing/loopback-server.ts';
import { LoopbackSockets } from '../testing/loopback-sockets.ts';

test('a terminal carries bytes unchanged in both directions and returns the exit code of its program', async () => {
  const typed: Buffer[] = [];
  const bytes = randomBytes(200_000);
  await using service = await LoopbackSockets.start(async (peer) => {
    while (Buffer.concat(typed).length < bytes.length + 3) typed.push((await peer.next()) as Buffer);
    peer.send(Buffer.from([0xff, 0, 0x1b]), Buffer.from('€'));
    peer.end({ type: 'exit', code: 130 });
  });
  const options = { cols: 120, rows: 40, command: 'vi a&b', cwd: '/tmp', user: 'node' };
  const terminal = await service.sandbox().terminal(options);
  const written = [terminal.write('é\r'), terminal.write(bytes)];
  await Promise.all(written);
  const chunks: Uint8Array[] = [];
  for await (const chunk of terminal) chunks.push(chunk);
  assert.deepEqual(Buffer.concat(chunks), Buffer.from([0xff, 0, 0x1b, 0xe2, 0x82, 0xac]));
  assert.deepEqual(await terminal.wait(), { exitCode: 130 });
  assert.deepEqual(Buffer.concat(typed), Buffer.concat([Buffer.from('é\r'), bytes]));
  assert.ok(typed.every((message) => message.length <= 65_536));
  const url = new URL(service.upgrades[0] ?? '', 'http://x');
  assert.equal(url.pathname, `/v1/runs/${SANDBOX_ID}/terminal`);
  url.searchParams.delete('ticket');
  const query = Object.fromEntries(url.searchParams);
  assert.deepEqual(query, { ...options, cols: '120', rows: '40' });
});

test('a terminal is resized by a text message, within the limits of the service', async () => {
  let message: unknown;
  await using service = await LoopbackSockets.start(async (peer) => {
    message = await peer.next();
    peer.end({ type: 'exit', code: 0 });
  });
  const terminal = await service.sandbox().terminal();
  for (const [cols, rows] of [
    [0, 24],
    [80, 1001],
    [80.5, 24],
  ] as const)
    assert.throws(() => terminal.resize(cols, rows), TypeError);
  terminal.resize(100, 30);
  await terminal.wait();
  terminal.resize(1, 1);
  assert.deepEqual(message, { type: 'resize', cols: 100, rows: 30 });
  await assert.rejects(terminal.write('late'), { code: 'closed' });
  await assert.rejects(service.sandbox().terminal({ cols: 0 }), /cols/);
});

test('a closed, restarted or aborted terminal rejects with the matching reason', async () => {
  const reason = new Error('no longer wanted');
  for (const [how, expected] of [
    ['close', { code: 'closed' }],
    ['restart', { code: 'unavailable' }],
    ['abort', reason],
  ] as const) {
    const controller = new AbortController();
    await using service = await LoopbackSockets.start(async (peer) => {
      await peer.next();
      if (how === 'restart') peer.socket.close(1012, 'restarting');
    });
    const terminal = await service.sandbox().terminal({ signal: controller.signal });
    const rejected = assert.rejects(terminal.wait(), expected);
    await terminal.write('x');
    if (how === 'close') await terminal.close();
    if (how === 'abort') controller.abort(reason);
    await rejected;
  }
});
