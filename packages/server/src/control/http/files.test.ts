import assert from 'node:assert/strict';
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
    assert.equal(harness.runner.uploads.at(-1)?.mode, '755');
    assert.ok(harness.runner.files.get('/w/é')?.equals(content));
  }
});

test('an empty body makes an empty file', async () => {
  const answer = await harness.call('POST', `${base}/upload?path=/empty`);
  assert.deepEqual(answer.body, { path: '/empty', size: 0 });
});

test('an upload that breaks resets the stream to the guest, which keeps nothing', async () => {
  const { port } = new URL(harness.control?.address ?? '');
  const socket = connect(Number(port), '127.0.0.1');
  socket.write(
    `POST ${base}/upload?path=/broken HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${API_KEY}\r\n` +
      `content-length: 1000000\r\n\r\n${'x'.repeat(1000)}`,
  );
  const findUpload = () => harness.runner.uploads.find((upload) => upload.path === '/broken');
  await waitFor('the first bytes', () => (findUpload()?.receivedBytes ?? 0) > 0);
  socket.destroy();
  await waitFor('the log', () =>
    harness.logLines.some((line) => line.includes('the connection ended before the answer')),
  );
  await harness.call('GET', `${base}?path=/`);
  assert.equal(findUpload()?.isBroken, true);
  assert.equal(harness.runner.files.has('/broken'), false);
});

test('a refusal in the middle of an upload reaches the client', async () => {
  harness.runner.onUpload = () => {
    throw new AppError('disk_full', 'no space left on the disk');
  };
  const answer = await harness.call('POST', `${base}/upload?path=/full`, { raw: Buffer.alloc(3 << 20) });
  harness.runner.onUpload = () => undefined;
  assert.equal(answer.status, 507);
  assert.equal(answer.body.error.code, 'disk_full');
});

test('a download has its size, honours a range, and cannot be taken for a page', async () => {
  harness.runner.files.set('/d', Buffer.from('0123456789'));
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

test('a file that is not there is 404 file_not_found', async () => {
  const answer = await harness.call('GET', `${base}/download?path=/missing`);
  assert.equal(answer.status, 404);
  assert.equal(answer.body.error.code, 'file_not_found');
  assert.equal((await harness.fetch('HEAD', `${base}/download?path=/missing`)).status, 404);
});

test('a large download arrives whole', async () => {
  const content = Buffer.alloc(20 << 20, 'xyz');
  harness.runner.files.set('/large', content);
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

test('a listing is passed on as the contract says', async () => {
  harness.runner.files.clear();
  harness.runner.files.set('/w/a', Buffer.from('1'));
  const { body } = await harness.call('GET', `${base}?path=/w`);
  assert.deepEqual(body, [
    { name: 'a', path: '/w/a', type: 'file', size: 1, mode: '0644', mtime: '2026-11-21T06:30:00.000Z' },
  ]);
});
