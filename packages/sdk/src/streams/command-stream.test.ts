import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { CoppiceError } from '../transport/errors.ts';
import { LoopbackServer, SANDBOX_ID } from '../testing/loopback-server.ts';
import { within } from '../testing/within.ts';

const SSE = { 'content-type': 'text/event-stream' };
const out = (data: string) => ({ type: 'stdout', data });
const err = (data: string) => ({ type: 'stderr', data });
const exit = (data: string) => ({ type: 'exit', data, timed_out: false });

function send(response: ServerResponse, ...frames: object[]): void {
  if (!response.headersSent) response.writeHead(200, SSE);
  for (const frame of frames) response.write(`data: ${JSON.stringify(frame)}\n\n`);
}

test('a streamed command yields its output in order and returns how it ended', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(200, SSE).write(':\n\n');
    send(response, out('a\n'), err('ß'), out('b'), exit('3'));
    response.end();
  });
  const chunks = server.sandbox().stream('make', { timeout: 5, stdin: 'in' });
  const seen: unknown[] = [];
  let next = await chunks.next();
  for (; next.done !== true; next = await chunks.next()) seen.push(next.value);
  assert.deepEqual(seen, [out('a\n'), err('ß'), out('b')]);
  assert.deepEqual(next.value, { exitCode: 3, timedOut: false });
  assert.equal(server.last.url, `/v1/runs/${SANDBOX_ID}/exec/stream`);
  assert.deepEqual(server.lastJson, { command: 'make', timeout: 5, stdin: 'in' });
});

test('output as bytes is what the command wrote', async () => {
  const bytes = Buffer.from([0xff, 0xfe, 0, 0x80]);
  await using server = await LoopbackServer.start((_, response) => {
    send(response, out(bytes.toString('base64')), err(''), exit('3'));
    response.end();
  });
  const chunks = server.sandbox().streamBytes('make', { timeout: 5 });
  const first = await chunks.next();
  assert.ok(first.done !== true);
  assert.deepEqual([first.value.type, Buffer.from(first.value.data)], ['stdout', bytes]);
  const second = await chunks.next();
  assert.deepEqual(second.value, { type: 'stderr', data: new Uint8Array() });
  assert.deepEqual((await chunks.next()).value, { exitCode: 3, timedOut: false });
  assert.equal(server.last.url, `/v1/runs/${SANDBOX_ID}/exec/stream?encoding=base64`);
});

test('leaving the loop over bytes kills the command', async () => {
  const left: Promise<unknown>[] = [];
  await using server = await LoopbackServer.start((_, response) => {
    left.push(once(response, 'close'));
    send(response, out('AA=='));
  });
  for await (const _ of server.sandbox().streamBytes('make')) break;
  assert.equal(left.length, 1);
  await within(5_000, Promise.all(left), 'the stream stays open');
});

test('frames and characters that arrive in pieces are joined', async () => {
  const bytes = Buffer.from(
    `data: ${JSON.stringify(out('äö€😀'))}\n\ndata: ${JSON.stringify(exit('0'))}\n\n`,
  );
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(200, SSE);
    const sendNext = (at: number): void => {
      if (at >= bytes.length) response.end();
      else response.write(bytes.subarray(at, at + 7), () => sendNext(at + 7));
    };
    sendNext(0);
  });
  const seen: string[] = [];
  for await (const { data } of server.sandbox().stream('x')) seen.push(data);
  assert.equal(seen.join(''), 'äö€😀');
});

test('exec calls its listeners as output arrives and returns all of the output', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    send(response, out('one'), err('two'), out('three'), exit('0'));
    response.end();
  });
  const seen: string[] = [];
  const result = await server.sandbox().exec('x', {
    onStdout: async (data) => {
      await Promise.resolve();
      seen.push(`out ${data}`);
    },
    onStderr: (data) => void seen.push(`err ${data}`),
  });
  assert.deepEqual(seen, ['out one', 'err two', 'out three']);
  assert.deepEqual(result, {
    exitCode: 0,
    stdout: 'onethree',
    stderr: 'two',
    timedOut: false,
    truncated: false,
  });
});

test('leaving the loop, a throwing listener and an abort each end the request', async () => {
  const leave = {
    loop: async (server: LoopbackServer) => {
      for await (const { data } of server.sandbox().stream('x')) if (data !== '') break;
    },
    listener: async (server: LoopbackServer) => {
      const onStdout = (): void => {
        throw new Error('enough');
      };
      await assert.rejects(server.sandbox().exec('x', { onStdout }), /enough/);
    },
    abort: async (server: LoopbackServer) => {
      const controller = new AbortController();
      const onStdout = (): void => controller.abort();
      await assert.rejects(server.sandbox().exec('x', { onStdout, signal: controller.signal }), {
        name: 'AbortError',
      });
    },
  };
  for (const [how, act] of Object.entries(leave)) {
    let noteClosed = (): void => undefined;
    const closed = new Promise<void>((resolve) => {
      noteClosed = resolve;
    });
    await using server = await LoopbackServer.start((_, response) => {
      response.once('close', () => noteClosed());
      send(response, out('y'));
    });
    await act(server);
    await within(5000, closed, `${how}: the request continues`);
  }
});

test('an error frame is an error with its code, and a stream without an end frame is an error', async () => {
  const error = { code: 'guest_unreachable', message: 'the sandbox was lost', request_id: 'req1' };
  await using failing = await LoopbackServer.start((_, response) => {
    send(response, out('y'), { type: 'error', data: error.message, error });
    response.end();
  });
  await assert.rejects(failing.sandbox().exec('x', { onStdout: () => undefined }), (thrown) => {
    assert.ok(thrown instanceof CoppiceError);
    assert.deepEqual([thrown.code, thrown.detail, thrown.requestId], [error.code, error.message, 'req1']);
    return true;
  });
  await using cut = await LoopbackServer.start((_, response) => {
    send(response, out('y'));
    response.end();
  });
  await assert.rejects(cut.sandbox().exec('x', { onStdout: () => undefined }), { code: 'connection_failed' });
});

test('a refusal before the stream rejects with the service’s error', async () => {
  await using server = await LoopbackServer.answering(409, {
    error: { code: 'invalid_state', message: 'the sandbox is destroyed' },
  });
  await assert.rejects(server.sandbox().stream('x').next(), { code: 'invalid_state', status: 409 });
});
