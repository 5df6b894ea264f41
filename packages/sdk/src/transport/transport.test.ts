import assert from 'node:assert/strict';
import { getEventListeners, once } from 'node:events';
import { test } from 'node:test';
import { Coppice } from '../coppice.ts';
import { CoppiceError } from './errors.ts';
import {
  errorBody,
  findRefusingUrl,
  LoopbackServer,
  sendJson,
  TEST_KEY,
  wireRecord,
} from '../testing/loopback-server.ts';

/** Starts a service that fails the first `failures` requests and then answers with a record. */
async function startFailing(failures: number, status: number, retryAfter?: string): Promise<LoopbackServer> {
  const headers: Record<string, string> = retryAfter === undefined ? {} : { 'retry-after': retryAfter };
  const server: LoopbackServer = await LoopbackServer.start((_, response) => {
    const fails = server.seen.length <= failures;
    sendJson(
      response,
      fails ? { status, headers, body: errorBody('unavailable', 'x') } : { body: wireRecord() },
    );
  });
  return server;
}

function isError(code: string, status = 0): (error: unknown) => boolean {
  return (error) => error instanceof CoppiceError && error.code === code && error.status === status;
}

test('requests answered 429 or 503 with Retry-After are retried', async () => {
  for (const status of [429, 503]) {
    await using server = await startFailing(2, status, '0');
    await server.client().sandboxes.get('run1');
    assert.equal(server.seen.length, 3);
  }
});

test('a retried create repeats its idempotency key and body', async () => {
  await using server = await startFailing(1, 429, '0');
  await server.client().sandboxes.create();
  const [first, second] = server.seen;
  assert.match(String(first?.headers['idempotency-key']), /^[0-9a-f]{32}$/);
  assert.equal(second?.headers['idempotency-key'], first?.headers['idempotency-key']);
  assert.deepEqual(second?.body, first?.body);
});

test('retries are bounded', async () => {
  await using server = await startFailing(99, 503, '0');
  await assert.rejects(server.client({ maxRetries: 2 }).sandboxes.get('run1'), isError('unavailable', 503));
  assert.equal(server.seen.length, 3);
});

test('there is no retry without Retry-After, with a long one, past the deadline, or on another status', async () => {
  for (const [status, retryAfter] of [
    [503, undefined],
    [503, '31'],
    [503, '20'],
    [500, '0'],
    [502, '0'],
    [504, '0'],
  ] as const) {
    await using server = await startFailing(1, status, retryAfter);
    await assert.rejects(server.client({ timeoutMs: 5000 }).sandboxes.get('run1'), CoppiceError);
    assert.equal(server.seen.length, 1, `${status} ${retryAfter}`);
  }
});

test('an exec is never retried', async () => {
  await using server = await startFailing(1, 503, '0');
  await assert.rejects(server.sandbox().exec('true'), isError('unavailable', 503));
  assert.equal(server.seen.length, 1);
});

test('a refused connection is retried and then reported with its code', async () => {
  let calls = 0;
  const client = new Coppice({
    apiKey: TEST_KEY,
    baseUrl: await findRefusingUrl(),
    maxRetries: 1,
    fetch: (url, init) => {
      calls += 1;
      return fetch(url, init);
    },
  });
  await assert.rejects(client.sandboxes.get('run1'), isError('connection_refused'));
  assert.equal(calls, 2);
});

test('a broken connection is reported and not retried', async () => {
  await using server = await LoopbackServer.start((_, response) => void response.destroy());
  await assert.rejects(server.client().sandboxes.create(), isError('connection_failed'));
  assert.equal(server.seen.length, 1);
});

test('an answer that breaks off in its body is an error', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(200, { 'content-length': '100' });
    response.write('{"id":', () => response.destroy());
  });
  await assert.rejects(server.client().sandboxes.get('run1'), isError('connection_failed'));
});

test('a service that does not answer, or stops within its answer, causes a timeout', async () => {
  await using silent = await LoopbackServer.start(() => undefined);
  await assert.rejects(silent.client({ timeoutMs: 50 }).sandboxes.get('run1'), isError('timeout'));
  await using halting = await LoopbackServer.start((_, response) => {
    response.writeHead(200);
    response.write('{');
  });
  await assert.rejects(halting.client({ timeoutMs: 50 }).sandboxes.get('run1'), isError('timeout'));
});

test('an abort rejects with the reason of the signal, before, during and between attempts', async () => {
  await using server = await LoopbackServer.start(() => undefined);
  const reason = new Error('enough');
  const client = server.client();
  await assert.rejects(client.sandboxes.get('run1', { signal: AbortSignal.abort(reason) }), reason);
  assert.equal(server.seen.length, 0);
  const controller = new AbortController();
  const call = client.sandboxes.get('run1', { signal: controller.signal });
  controller.abort(reason);
  await assert.rejects(call, reason);

  const between = new AbortController();
  await using busy = await LoopbackServer.start((_, response) => {
    sendJson(response, { status: 503, body: '', headers: { 'retry-after': '20' } });
    response.on('close', () => setImmediate(() => between.abort(reason)));
  });
  await assert.rejects(busy.client().sandboxes.get('run1', { signal: between.signal }), reason);
});

test('a call leaves no listener on a long-lived signal', async () => {
  await using server = await LoopbackServer.answering(200, wireRecord());
  const { signal } = new AbortController();
  await server.client().sandboxes.get('run1', { signal });
  assert.equal(getEventListeners(signal, 'abort').length, 0);
});

test('a redirect is not followed, so that the key is sent to no other host', async () => {
  await using other = await LoopbackServer.answering(200, wireRecord());
  await using server = await LoopbackServer.answering(307, '', { location: `${other.url}/v1/runs` });
  await assert.rejects(server.client().sandboxes.create(), isError('http_307', 307));
  assert.equal(other.seen.length, 0);
});

test('an answer that is not JSON, or has another shape, is reported with its first bytes', async () => {
  for (const body of ['<html>hello', '[]', '{"id":7}', 'null', '']) {
    await using server = await LoopbackServer.answering(200, body);
    await assert.rejects(server.client().sandboxes.get('run1'), (error) => {
      assert.ok(isError('invalid_response', 200)(error));
      assert.ok((error as Error).message.includes(`baseUrl right? ${body}`));
      return true;
    });
  }
});

test('the status of an error is reported even if its body breaks off', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(413, { 'content-length': '100' });
    response.write('{', () => response.destroy());
  });
  await assert.rejects(server.client().sandboxes.get('run1'), isError('http_413', 413));
});

test('only the beginning of a huge error body is read', async () => {
  await using server = await LoopbackServer.start(async (_, response) => {
    response.writeHead(500);
    const chunk = Buffer.alloc(65_536, 'x');
    const closed = once(response, 'close');
    while (!response.destroyed) {
      if (!response.write(chunk)) await Promise.race([once(response, 'drain'), closed]);
    }
  });
  await assert.rejects(server.client().sandboxes.get('run1'), isError('http_500', 500));
});
