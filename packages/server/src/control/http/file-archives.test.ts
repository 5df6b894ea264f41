import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { API_KEY, startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
let id = '';
let path = '';
before(async () => {
  harness = await startHarness();
  ({ id } = await harness.create());
  path = `/v1/runs/${id}/files/archive`;
});
after(() => harness[Symbol.asyncDispose]());

const archives = () => harness.runner.files.archives;

async function readLastEntry(): Promise<unknown> {
  const text = await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text();
  const { event, data } = JSON.parse(text.trim().split('\n').at(-1) ?? '') as Record<string, unknown>;
  return { event, data };
}

test('an archive arrives byte for byte in the guest, with its format and user, and is logged', async () => {
  const content = Buffer.alloc(5 << 20, 'ab\0ÿ');
  const answer = await harness.call('PUT', `${path}?path=/w&format=tar.gz&user=app`, { raw: content });
  assert.deepEqual([answer.status, answer.body], [200, { path: '/w', entries: 2, size: content.length }]);
  assert.ok(archives().contents.get('/w')?.equals(content));
  assert.equal(archives().uploads.at(-1)?.toString(), 'path=%2Fw&format=tar.gz&user=app');
  assert.deepEqual(await readLastEntry(), {
    event: 'file.upload',
    data: { path: '/w', size: content.length, archive: 'tar.gz', entries: 2 },
  });
});

test('an archive is read as it is, cannot be rendered as a page, and is logged', async () => {
  const content = Buffer.alloc(5 << 20, 'xyz');
  archives().contents.set('/d', content);
  for (const [format, type] of [
    ['tar', 'application/x-tar'],
    ['tar.gz', 'application/gzip'],
  ]) {
    const response = await harness.fetch('GET', `${path}?path=/d&format=${format}`);
    assert.equal(response.status, 200);
    assert.equal(response.headers.get('content-type'), type);
    const name = `attachment; filename*=UTF-8''d.${format}`;
    assert.equal(response.headers.get('content-disposition'), name);
    assert.equal(response.headers.get('content-security-policy'), "default-src 'none'; sandbox");
    assert.ok(Buffer.from(await response.arrayBuffer()).equals(content));
    const data = { path: '/d', size: null, archive: format };
    assert.deepEqual(await readLastEntry(), { event: 'file.download', data });
  }
});

test('an archive that breaks off in the guest does not look whole', async () => {
  archives().contents.set('/broken', Buffer.alloc(1000));
  archives().onSend = (stream, content) => stream.write(content, () => stream.destroy(new Error('broken')));
  const answer = await harness.fetch('GET', `${path}?path=/broken`);
  // Whether the status has been sent by then is left to chance.
  if (answer.status === 200) await assert.rejects(answer.arrayBuffer());
  else assert.match(await answer.text(), /the sandbox broke off its answer/u);
  archives().onSend = (stream, content) => stream.end(content);
});

test('an archive that the guest refuses may be unpacked in part, and the log says so', async () => {
  archives().onUnpack = () => {
    throw new AppError('invalid_request', 'body: ended early; 3 entries with 7 bytes were written before');
  };
  const { status, body } = await harness.call('PUT', `${path}?path=/w`, { raw: 'x' });
  archives().onUnpack = () => undefined;
  assert.equal(status, 400);
  assert.match(body.error.message, /3 entries/);
  assert.deepEqual(await readLastEntry(), {
    event: 'file.upload',
    data: { path: '/w', size: null, archive: 'tar', entries: null, complete: false },
  });
});

test('an archive whose client leaves is logged as not complete', async () => {
  const { port } = new URL(harness.control?.address ?? '');
  const uploads = archives().uploads.length;
  const socket = connect(Number(port), '127.0.0.1');
  socket.write(
    `PUT ${path}?path=/left HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${API_KEY}\r\ncontent-length: 1000\r\n\r\nx`,
  );
  await waitFor('the upload', () => archives().uploads.length > uploads);
  socket.destroy();
  await waitFor('the entry', async () =>
    JSON.stringify(await readLastEntry()).includes('"path":"/left","size":null'),
  );
  assert.equal(archives().contents.has('/left'), false);
});

test('an invalid field is 400 and reaches no guest', async () => {
  const uploads = archives().uploads.length;
  for (const query of ['', 'path=', 'path=/a&format=zip', 'path=/a&user=', 'path=/a&x=1']) {
    const answer = await harness.call('PUT', `${path}?${query}`, { raw: 'x' });
    assert.deepEqual([answer.status, answer.body.error.code], [400, 'invalid_request'], query);
  }
  assert.equal((await harness.call('GET', `${path}?path=/a&format=zip`)).status, 400);
  assert.equal(archives().uploads.length, uploads);
});
