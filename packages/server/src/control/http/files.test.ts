import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerHttp2Stream } from 'node:http2';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { API_KEY, startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
let base = '';
before(async () => {
  harness = await startHarness();
  base = `/v1/runs/${(await harness.create()).id}/files`;
});
after(() => harness[Symbol.asyncDispose]());

test('an upload of any content type arrives byte for byte, with its mode', async () => {
  const content = Buffer.alloc(5 << 20, 'ab\0ÿ');
  for (const type of ['application/json', 'text/plain', 'application/octet-stream', 'x/y']) {
    const headers = { 'content-type': type };
    const answer = await harness.call('POST', `${base}/upload?path=/w/%C3%A9&mode=755`, {
      raw: content,
      headers,
    });
    assert.deepEqual(answer.body, { path: '/w/é', size: content.length });
    assert.equal(harness.runner.files.uploads.at(-1)?.mode, '755');
    assert.ok(harness.runner.files.contents.get('/w/é')?.equals(content));
  }
});

test('an upload can name its user', async () => {
  for (const [query, user] of [
    ['', null],
    ['&user=app', 'app'],
    ['&user=1000%3A1000', '1000:1000'],
  ] as const) {
    await harness.call('POST', `${base}/upload?path=/w/u${query}`, { raw: 'x' });
    assert.equal(harness.runner.files.uploads.at(-1)?.user, user);
  }
  const refused = await harness.call('POST', `${base}/upload?path=/w/u&user=`, { raw: 'x' });
  assert.match(refused.body.error.message, /^user: must not be empty/);
});

/** Uploads with a form, as browsers do. */
function postForm(path: string, parts: [name: string, content: Buffer<ArrayBuffer> | string][]) {
  const form = new FormData();
  for (const [name, content] of parts) form.append(name, new Blob([content]), 'name.bin');
  return harness.call('POST', `${base}/upload?path=${path}`, { raw: form });
}

test('the file of a form is stored, and its size is in the audit log', async () => {
  const content = Buffer.alloc(3 << 20, 'ab\r\n--ÿ');
  const { body } = await postForm('/form', [['file', content]]);
  assert.deepEqual(body, { path: '/form', size: content.length });
  assert.ok(harness.runner.files.contents.get('/form')?.equals(content));
  const log = await (await harness.fetch('GET', base.replace(/files$/, 'audit'))).text();
  assert.match(log.trim().split('\n').at(-1) ?? '', new RegExp(`"path":"/form","size":${content.length}`));
});

test('a form with another part is refused, and nothing of it is stored', async () => {
  const content = Buffer.alloc(1 << 20, 'x');
  for (const parts of [
    [['path', '/x']],
    [
      ['file', content],
      ['mode', '755'],
    ],
  ] as [string, Buffer<ArrayBuffer> | string][][]) {
    const { status, body } = await postForm('/refused', parts);
    assert.deepEqual([status, body.error.code], [400, 'invalid_request']);
    assert.match(body.error.message, /^body: .*part "file"/);
  }
  assert.equal(harness.runner.files.contents.has('/refused'), false);
  assert.equal(harness.runner.files.uploads.findLast(({ path }) => path === '/refused')?.isBroken, true);
});

test('a form that the guest refuses gets the answer of the guest', async () => {
  harness.runner.files.onUpload = () => {
    throw new AppError('disk_full', 'no space left on the disk');
  };
  const { status } = await postForm('/full', [['file', Buffer.alloc(3 << 20)]]);
  harness.runner.files.onUpload = () => undefined;
  assert.equal(status, 507);
});

test('a form whose client leaves stores nothing', async () => {
  const form = '--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nstart';
  await leaveUpload('/left', `content-type: multipart/form-data; boundary=b\r\n`, form);
});

test('an empty body makes an empty file', async () => {
  const answer = await harness.call('POST', `${base}/upload?path=/empty`);
  assert.deepEqual(answer.body, { path: '/empty', size: 0 });
});

/** Begins an upload, and breaks the connection when the guest has received some of it. */
async function leaveUpload(path: string, headers: string, body: string): Promise<void> {
  const { port } = new URL(harness.control?.address ?? '');
  const socket = connect(Number(port), '127.0.0.1');
  socket.write(
    `POST ${base}/upload?path=${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${API_KEY}\r\n` +
      `${headers}content-length: 1000000\r\n\r\n${body}`,
  );
  const findUpload = () => harness.runner.files.uploads.find((upload) => upload.path === path);
  await waitFor('the first bytes', () => (findUpload()?.receivedBytes ?? 0) > 0);
  const countLogged = () =>
    harness.logLines.filter((line) => line.includes('the connection ended before the answer')).length;
  const before = countLogged();
  socket.destroy();
  await waitFor('the log', () => countLogged() > before);
  await harness.call('GET', `${base}?path=/`);
  assert.equal(findUpload()?.isBroken, true);
  assert.equal(harness.runner.files.contents.has(path), false);
}

test('an upload that breaks off resets the stream to the guest, which stores nothing', async () => {
  await leaveUpload('/broken', '', 'x'.repeat(1000));
});

test('an upload that stalls is aborted, as raw bytes and as a form', { timeout: 20_000 }, async () => {
  await using impatient = await startHarness({ transferStallMs: 300 });
  const { id } = await impatient.create();
  const { port } = new URL(impatient.control?.address ?? '');
  const form = '--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nstart';
  for (const [headers, body] of [
    ['', 'start'],
    ['content-type: multipart/form-data; boundary=b\r\n', form],
    ['content-type: multipart/form-data; boundary=b\r\n', '--b'],
  ]) {
    const socket = connect(Number(port), '127.0.0.1').setEncoding('utf8');
    socket.write(
      `POST /v1/runs/${id}/files/upload?path=/stalled HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${API_KEY}\r\n` +
        `${headers}content-length: 1000\r\n\r\n${body}`,
    );
    const [answer] = (await once(socket, 'data')) as [string];
    socket.destroy();
    assert.match(answer, /^HTTP\/1\.1 502 [^]*the upload did not move for 0\.3 s/);
  }
  assert.equal(impatient.runner.files.contents.size, 0);
});

/** Returns the data of the last entry of the audit log. */
async function readLastEntry(): Promise<unknown> {
  const log = await (await harness.fetch('GET', base.replace(/files$/, 'audit'))).text();
  return JSON.parse(log.trim().split('\n').at(-1) ?? '').data;
}

test('the guest chooses neither the path in the log nor, but for where it starts, that of the answer', async () => {
  for (const [asked, answered, expected] of [
    ['/w/../real', '/forged', '/real'],
    ['x/real', '/image/x/real', '/image/x/real'],
    ['x/real', '/image/forged', 'x/real'],
    ['x/real', `/${'y'.repeat(5000)}/x/real`, 'x/real'],
  ] as const) {
    harness.runner.files.answeredPath = answered;
    const { body } = await harness.call('POST', `${base}/upload?path=${asked}`, { raw: 'x' });
    harness.runner.files.answeredPath = undefined;
    assert.deepEqual(body, { path: expected, size: 1 });
    assert.deepEqual(await readLastEntry(), { path: asked, size: 1 });
  }
});

test('an upload that fails on the way is logged as not complete', async () => {
  harness.runner.files.onUpload = () => {
    throw new AppError('file_not_found', 'forged by the guest');
  };
  const { status } = await harness.call('POST', `${base}/upload?path=/part`, { raw: 'x' });
  harness.runner.files.onUpload = () => undefined;
  assert.equal(status, 404);
  assert.deepEqual(await readLastEntry(), { path: '/part', size: null, complete: false });
});

test('a refusal during an upload reaches the client', async () => {
  harness.runner.files.onUpload = () => {
    throw new AppError('disk_full', 'no space left on the disk');
  };
  const answer = await harness.call('POST', `${base}/upload?path=/full`, { raw: Buffer.alloc(3 << 20) });
  harness.runner.files.onUpload = () => undefined;
  assert.equal(answer.status, 507);
  assert.equal(answer.body.error.code, 'disk_full');
});

test('a download has its size, honours a range, and cannot be rendered as a page', async () => {
  harness.runner.files.contents.set('/d', Buffer.from('0123456789'));
  const whole = await harness.fetch('GET', `${base}/download?path=/d`);
  assert.equal(whole.status, 200);
  assert.equal(whole.headers.get('content-length'), '10');
  assert.equal(whole.headers.get('x-content-type-options'), 'nosniff');
  assert.equal(await whole.text(), '0123456789');
  const part = await harness.fetch('GET', `${base}/download?path=/d`, { headers: { range: 'bytes=2-4' } });
  assert.equal(part.status, 206);
  assert.equal(part.headers.get('content-range'), 'bytes 2-4/10');
  assert.equal(await part.text(), '234');
  const beyond = await harness.call('GET', `${base}/download?path=/d`, { headers: { range: 'bytes=20-30' } });
  assert.equal(beyond.status, 416);
  const head = await harness.fetch('HEAD', `${base}/download?path=/d`);
  assert.equal(head.headers.get('content-length'), '10');
});

test('a missing file is 404 file_not_found', async () => {
  const answer = await harness.call('GET', `${base}/download?path=/missing`);
  assert.equal(answer.status, 404);
  assert.equal(answer.body.error.code, 'file_not_found');
  assert.equal((await harness.fetch('HEAD', `${base}/download?path=/missing`)).status, 404);
});

test('a large download arrives whole', async () => {
  const content = Buffer.alloc(20 << 20, 'xyz');
  harness.runner.files.contents.set('/large', content);
  const response = await harness.fetch('GET', `${base}/download?path=/large`);
  assert.ok(Buffer.from(await response.arrayBuffer()).equals(content));
});

test('paths with NUL, empty paths and unknown query fields are 400', async () => {
  for (const query of ['path=%2Fa%00b', 'path=', '', 'path=/a&x=1', 'path=/a&path=/b']) {
    for (const [method, action] of [
      ['POST', '/upload'],
      ['GET', '/download'],
      ['GET', ''],
    ] as const) {
      const answer = await harness.call(method, `${base}${action}?${query}`);
      assert.equal(answer.status, 400, `${method} ${action} ${query}`);
      assert.equal(answer.body.error.code, 'invalid_request');
    }
  }
});

test('a listing is passed on in the form of the contract', async () => {
  harness.runner.files.contents.clear();
  harness.runner.files.contents.set('/w/a', Buffer.from('1'));
  const { body, headers } = await harness.call('GET', `${base}?path=/w`);
  assert.deepEqual(body, [
    { name: 'a', path: '/w/a', type: 'file', size: 1, mode: '0644', mtime: '2026-11-21T06:30:00.000Z' },
  ]);
  assert.equal(headers.get('link'), null);
  assert.equal(harness.runner.files.lists.at(-1)?.toString(), 'path=%2Fw&limit=1000');
});

test('a listing that has more entries links to its next page', async () => {
  harness.runner.files.nextCursor = 'YQ';
  const { headers } = await harness.call('GET', `${base}?path=/w/%26&limit=5`);
  harness.runner.files.nextCursor = undefined;
  const [, next = ''] = /^<(.*)>; rel="next"$/.exec(headers.get('link') ?? '') ?? [];
  assert.equal(next, `${base}?path=%2Fw%2F%26&limit=5&cursor=YQ`);
  await harness.call('GET', next);
  assert.equal(harness.runner.files.lists.at(-1)?.toString(), 'path=%2Fw%2F%26&limit=5&after=YQ');
});

test('a cursor that no agent creates is neither passed on nor accepted', async () => {
  harness.runner.files.nextCursor = 'a>; rel="x", <b';
  const broken = await harness.call('GET', `${base}?path=/w`);
  harness.runner.files.nextCursor = undefined;
  assert.deepEqual([broken.status, broken.body.error.code], [502, 'guest_unreachable']);
  for (const query of ['cursor=', 'cursor=%2F', `cursor=${'a'.repeat(341)}`, 'limit=0', 'limit=10001']) {
    const { status, body } = await harness.call('GET', `${base}?path=/w&${query}`);
    assert.equal(status, 400, query);
    assert.match(body.error.message, /^(cursor|limit): /);
  }
});

/** Downloads what `write` sends for a file that has no size. */
async function downloadUnsized(write: (stream: ServerHttp2Stream) => void): Promise<Response> {
  harness.runner.files.onDownload = (stream) => {
    stream.respond({ ':status': 200 });
    write(stream);
    return true;
  };
  try {
    return await harness.fetch('GET', `${base}/download?path=/proc/x`);
  } finally {
    harness.runner.files.onDownload = () => false;
  }
}

test('a file without a size arrives whole, and its audit entry has no size', async () => {
  const content = Buffer.alloc(3 << 20, 'xyz');
  const response = await downloadUnsized((stream) => stream.end(content));
  assert.deepEqual([response.status, response.headers.get('content-length')], [200, null]);
  assert.equal(response.headers.get('accept-ranges'), null);
  assert.ok(Buffer.from(await response.arrayBuffer()).equals(content));
  const [, id = ''] = /^\/v1\/runs\/(\w+)/.exec(base) ?? [];
  const log = await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text();
  assert.match(log.trim().split('\n').at(-1) ?? '', /"data":\{"path":"\/proc\/x","size":null\}/);
});

test('a file without a size that breaks off does not look whole', async () => {
  const breaks: ((stream: ServerHttp2Stream) => void)[] = [
    (stream) => stream.destroy(new Error('broken')),
    (stream) => stream.session?.destroy(),
  ];
  for (const broken of breaks) {
    const { promise: received, resolve: noteReceived } = Promise.withResolvers<void>();
    const response = await downloadUnsized((stream) => {
      stream.write('x'.repeat(1000));
      received.then(() => broken(stream), assert.fail);
    });
    assert.equal(response.status, 200);
    noteReceived();
    await assert.rejects(response.text());
  }
});

test('a file error of the guest is a 400 with its errno', async () => {
  harness.runner.files.onDownload = () => {
    throw new AppError('file_error', 'cannot read /sys/x: input/output error (EIO)');
  };
  const { status, body } = await harness.call('GET', `${base}/download?path=/sys/x`);
  harness.runner.files.onDownload = () => false;
  assert.deepEqual([status, body.error.code], [400, 'file_error']);
  assert.match(body.error.message, /\(EIO\)$/);
});
