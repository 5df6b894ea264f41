import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { test } from 'node:test';
import fc from 'fast-check';
import { errorBody, LoopbackServer, SANDBOX_ID, sendJson } from '../testing/loopback-server.ts';

const WRITTEN = { path: '/a', size: 1 };

/** Starts a service that stores uploads by path and returns them. */
async function startStore(): Promise<LoopbackServer> {
  const files = new Map<string | null, Buffer>();
  return LoopbackServer.start((request, response) => {
    const path = new URL(request.url, 'http://h').searchParams.get('path');
    if (request.method === 'POST') {
      files.set(path, request.body);
      sendJson(response, { body: { path, size: request.body.length } });
    } else if (files.has(path)) response.end(files.get(path));
    else sendJson(response, { status: 404, body: errorBody('file_not_found', 'there is no such file') });
  });
}

function streamOf(...chunks: Uint8Array[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    pull(controller) {
      const chunk = chunks.shift();
      if (chunk === undefined) controller.close();
      else controller.enqueue(chunk);
    },
  });
}

test('every kind of content arrives byte for byte', async () => {
  await using server = await startStore();
  const sandbox = server.sandbox();
  const bytes = Uint8Array.from({ length: 70_000 }, (_, index) => index % 256);
  for (const content of [
    bytes,
    Buffer.from(bytes),
    new Blob([bytes]),
    streamOf(bytes.slice(0, 9), bytes.slice(9)),
  ]) {
    assert.deepEqual(await sandbox.upload('/a', content), { path: '/a', size: 70_000 });
    assert.deepEqual(await sandbox.downloadBytes('/a'), bytes);
  }
});

test('text and path with any characters survive the round trip', async () => {
  await using server = await startStore();
  const sandbox = server.sandbox();
  await fc.assert(
    fc.asyncProperty(fc.string({ unit: 'binary' }), fc.string({ unit: 'binary' }), async (name, text) => {
      const path = `/ +&?#%${name}`;
      assert.equal((await sandbox.upload(path, `\uFEFF${text}`)).path, path);
      assert.equal(await sandbox.download(path), `\uFEFF${text}`);
    }),
    { numRuns: 30 },
  );
});

test('an empty file is uploaded and downloaded as an empty file', async () => {
  await using server = await startStore();
  const sandbox = server.sandbox();
  for (const content of ['', new Uint8Array(0), new Blob([]), streamOf()]) {
    assert.equal((await sandbox.upload('/e', content)).size, 0);
    assert.equal(await sandbox.download('/e'), '');
  }
});

test('the mode is sent in octal', async () => {
  await using server = await LoopbackServer.answering(200, WRITTEN);
  const sandbox = server.sandbox();
  for (const [mode, sent] of [
    [0o755, '755'],
    ['0644', '0644'],
    [0o7, '007'],
    [0, '000'],
  ] as const) {
    await sandbox.upload('/a', 'x', { mode });
    assert.equal(server.last.url, `/v1/runs/${SANDBOX_ID}/files/upload?path=%2Fa&mode=${sent}`);
    assert.equal(server.last.headers['content-type'], 'application/octet-stream');
  }
  await assert.rejects(sandbox.upload('/a', 'x', { mode: 0o10000 }), /mode/);
  await assert.rejects(sandbox.upload('/a', 'x', { mode: 6.5 }), /mode/);
});

test('the owner is sent unchanged', async () => {
  await using server = await LoopbackServer.answering(200, WRITTEN);
  await server.sandbox().upload('/a', 'x', { user: 'app:www data' });
  assert.equal(server.last.url, `/v1/runs/${SANDBOX_ID}/files/upload?path=%2Fa&user=app%3Awww%20data`);
});

test('a long directory is listed page by page', async () => {
  const entry = { type: 'file', size: 1, mode: '0644', mtime: '2026-11-21T06:30:00.000Z' };
  await using server = await LoopbackServer.start((request, response) => {
    const query = new URL(request.url, 'http://h').searchParams;
    const name = query.get('cursor') ?? 'a';
    if (name === 'a') response.setHeader('link', `</v1/runs/x/files?path=%2Fd&cursor=b>; rel="next"`);
    sendJson(response, { body: [{ ...entry, name, path: `/d/${name}` }] });
  });
  const sandbox = server.sandbox();
  const names: string[] = [];
  for await (const { name } of sandbox.listFiles('/d')) names.push(name);
  assert.deepEqual(names, ['a', 'b']);
  assert.deepEqual(
    server.seen.map(({ url }) => url),
    ['path=%2Fd', 'path=%2Fd&cursor=b'].map((query) => `/v1/runs/${SANDBOX_ID}/files?${query}`),
  );
  assert.equal((await sandbox.listFiles('/d', { limit: 1 })).length, 1);
  assert.match(server.last.url, /limit=1$/);
  assert.throws(() => sandbox.listFiles('/d', { limit: 0 }), /limit/);
});

test('content of another type and a path that is not valid Unicode are refused by name', async () => {
  await using server = await startStore();
  const sandbox = server.sandbox();
  await assert.rejects(sandbox.upload('/a', { pipe: true } as unknown as string), /content.*toWeb/);
  await assert.rejects(sandbox.download('/\ud800'), /path is not well-formed/);
  assert.equal(server.seen.length, 0);
});

test('bytes that are not UTF-8 become U+FFFD in text', async () => {
  await using server = await startStore();
  const sandbox = server.sandbox();
  await sandbox.upload('/b', Uint8Array.of(0x61, 0xff));
  assert.equal(await sandbox.download('/b'), 'a\uFFFD');
});

test('a missing file is an error with its code, for text, bytes and stream alike', async () => {
  await using server = await startStore();
  const sandbox = server.sandbox();
  const expected = { code: 'file_not_found', status: 404, detail: 'there is no such file' };
  await assert.rejects(sandbox.download('/none'), expected);
  await assert.rejects(sandbox.downloadBytes('/none'), expected);
  await assert.rejects(sandbox.downloadStream('/none'), expected);
});

test('a file over the limit is refused before it fills the memory', async () => {
  await using server = await startStore();
  const sandbox = server.sandbox();
  await sandbox.upload('/big', 'x'.repeat(2000));
  await assert.rejects(sandbox.download('/big', { maxBytes: 1999 }), { code: 'response_too_large' });
  assert.equal((await sandbox.download('/big', { maxBytes: 2000 })).length, 2000);
});

test('a large stream is uploaded and downloaded in pieces', async () => {
  const hashOf = (chunks: Uint8Array[]): string =>
    chunks.reduce((hash, chunk) => hash.update(chunk), createHash('sha256')).digest('hex');
  const chunks = Array.from({ length: 64 }, (_, index) => new Uint8Array(262_144).fill(index));
  await using server = await startStore();
  const sandbox = server.sandbox();
  await sandbox.upload('/large', streamOf(...chunks));
  const read: Uint8Array[] = [];
  const reader = (await sandbox.downloadStream('/large')).getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) read.push(next.value);
  assert.ok(read.length > 1);
  assert.equal(hashOf(read), hashOf(chunks));
});

test('an upload whose source fails aborts the request and rejects with the source’s error', async () => {
  let onBroken: (complete: boolean) => void;
  const broken = new Promise<boolean>((resolve) => (onBroken = resolve));
  await using server = await LoopbackServer.raw((request) => {
    request.resume().on('close', () => onBroken(request.complete));
    request.on('error', () => undefined);
  });
  const failure = new Error('the source is gone');
  let pulls = 0;
  const source = new ReadableStream<Uint8Array>({
    pull(controller) {
      pulls += 1;
      if (pulls > 2) controller.error(failure);
      else controller.enqueue(new Uint8Array(1000));
    },
  });
  await assert.rejects(server.sandbox().upload('/a', source), failure);
  assert.equal(await broken, false);
});

test('an aborted upload cancels its source', async () => {
  await using server = await LoopbackServer.raw(
    (request) => void request.resume().on('error', () => undefined),
  );
  const controller = new AbortController();
  let onCancel: () => void;
  const cancelled = new Promise<void>((resolve) => (onCancel = resolve));
  const source = new ReadableStream<Uint8Array>(
    {
      pull: () => controller.abort(),
      cancel: () => onCancel(),
    },
    { highWaterMark: 0 },
  );
  const call = server.sandbox().upload('/a', source, { signal: controller.signal });
  await assert.rejects(call, { name: 'AbortError' });
  await cancelled;
});

test('a refusal before the content is read is reported with its status and cancels the source', async () => {
  await using server = await LoopbackServer.raw((_, response) => {
    sendJson(response, { status: 409, body: errorBody('invalid_state', 'the sandbox is hibernated') });
  });
  const refused = { code: 'invalid_state', status: 409 };
  await assert.rejects(server.sandbox().upload('/a', new Uint8Array(8_000_000)), refused);
  let cancelled = false;
  const endless = new ReadableStream<Uint8Array>({
    pull: (to) => to.enqueue(new Uint8Array(65_536)),
    cancel: () => {
      cancelled = true;
    },
  });
  await assert.rejects(server.sandbox().upload('/a', endless), refused);
  assert.ok(cancelled);
});

test('an upload that makes no progress rejects with code timeout', async () => {
  await using server = await LoopbackServer.raw((request) => void request.pause());
  const endless = new ReadableStream<Uint8Array>({ pull: (to) => to.enqueue(new Uint8Array(65_536)) });
  await assert.rejects(server.sandbox({ timeoutMs: 100 }).upload('/a', endless), { code: 'timeout' });
});

test('an upload waits for a source that takes longer than the deadline', async () => {
  await using server = await startStore();
  let pulls = 0;
  const slow = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        pulls += 1;
        if (pulls > 1) return controller.close();
        await new Promise((resolve) => setTimeout(resolve, 600));
        controller.enqueue(Uint8Array.of(1));
      },
    },
    { highWaterMark: 0 },
  );
  assert.equal((await server.sandbox({ timeoutMs: 400 }).upload('/a', slow)).size, 1);
});

test('a download that breaks off is an error, not a shorter file', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(200, { 'content-length': '1000' });
    response.write('half', () => response.destroy());
  });
  await assert.rejects(server.sandbox().download('/a'), { code: 'connection_failed' });
});

test('a stalled download rejects with code timeout, and a stalled reader does not', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(200, { 'content-length': '1000' });
    response.write('half');
  });
  const reader = (await server.sandbox({ timeoutMs: 400 }).downloadStream('/a')).getReader();
  await new Promise((resolve) => setTimeout(resolve, 600));
  assert.equal(Buffer.from((await reader.read()).value ?? []).toString(), 'half');
  await assert.rejects(reader.read(), { code: 'timeout' });
});

test('a running download can be aborted, and cancelling it closes the connection', async () => {
  const closed: Promise<unknown>[] = [];
  await using server = await LoopbackServer.start((_, response) => {
    closed.push(once(response, 'close'));
    response.writeHead(200, { 'content-length': '1000' });
    response.write('half');
  });
  const controller = new AbortController();
  const reader = (await server.sandbox().downloadStream('/a', { signal: controller.signal })).getReader();
  await reader.read();
  controller.abort();
  await assert.rejects(reader.read(), { name: 'AbortError' });
  const cancelled = await server.sandbox().downloadStream('/a');
  await cancelled.cancel();
  await Promise.all(closed);
});

test('directory entries have fields in camelCase', async () => {
  const mtime = '2026-11-21T06:30:00.000Z';
  await using server = await LoopbackServer.answering(200, [
    { name: 'a', path: '/d/a', type: 'symlink', size: 3, mode: '0777', mtime, target: 'b c' },
    { name: 'b', path: '/d/b', type: 'door', size: 0, mode: '0644', mtime },
  ]);
  assert.deepEqual(await server.sandbox().listFiles('/d'), [
    { name: 'a', path: '/d/a', type: 'symlink', size: 3, mode: '0777', mtime, target: 'b c' },
    { name: 'b', path: '/d/b', type: 'other', size: 0, mode: '0644', mtime, target: null },
  ]);
  assert.equal(server.last.url, `/v1/runs/${SANDBOX_ID}/files?path=%2Fd`);
});

for (const honours of [true, false])
  test(`a stream has the part that is asked for, ${honours ? 'sent as a range' : 'also when the service sends the whole file'}`, async () => {
    const content = Buffer.from('0123456789');
    const ranges: (string | undefined)[] = [];
    await using server = await LoopbackServer.start(({ headers }, response) => {
      ranges.push(headers.range);
      const [, from, to] = /^bytes=(\d+)-(\d*)$/u.exec(headers.range ?? '') ?? [];
      const end = to === undefined || to === '' ? content.length : Number(to) + 1;
      if (honours && from !== undefined) response.writeHead(206).end(content.subarray(Number(from), end));
      else {
        response.write(content.subarray(0, 3));
        response.end(content.subarray(3));
      }
    });
    const read = async (offset?: number, length?: number): Promise<string> =>
      new Response(await server.sandbox().downloadStream('/a', { offset, length })).text();
    assert.deepEqual([await read(), await read(0), await read(4)], ['0123456789', '0123456789', '456789']);
    assert.deepEqual([await read(2, 3), await read(0, 4), await read(8, 9)], ['234', '0123', '89']);
    const parts = ['bytes=2-4', 'bytes=0-3', 'bytes=8-16'];
    assert.deepEqual(ranges, [undefined, undefined, 'bytes=4-', ...parts]);
    for (const [offset, length] of [[-1], [1.5], [0, 0], [0, 1.5]])
      await assert.rejects(read(offset, length), TypeError);
  });
