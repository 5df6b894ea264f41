import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { startHarness, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
let id = '';
let base = '';
before(async () => {
  harness = await startHarness();
  ({ id } = await harness.create());
  base = `/v1/runs/${id}/files`;
});
beforeEach(() => {
  harness.runner.files.contents.clear();
  harness.runner.files.changes.directories.clear();
  harness.runner.files.changes.onChange = () => undefined;
});
after(() => harness[Symbol.asyncDispose]());

interface LoggedEvent {
  event: string;
  data: unknown;
}

async function readLog(): Promise<LoggedEvent[]> {
  const text = await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text();
  return text
    .trim()
    .split('\n')
    .map((line) => {
      const { event, data } = JSON.parse(line) as LoggedEvent;
      return { event, data };
    });
}

test('stat answers one entry with its owner, and 404 for a missing file', async () => {
  harness.runner.files.contents.set('/w/a', Buffer.from('12345'));
  const { status, body } = await harness.call('GET', `${base}/stat?path=/w/a`);
  assert.equal(status, 200);
  assert.deepEqual(body, {
    name: 'a',
    path: '/w/a',
    type: 'file',
    size: 5,
    mode: '0644',
    mtime: '2026-11-21T06:30:00.000Z',
    uid: 0,
    gid: 0,
    user: 'root',
    group: 'root',
  });
  const missing = await harness.call('GET', `${base}/stat?path=/none`);
  assert.deepEqual([missing.status, missing.body.error.code], [404, 'file_not_found']);
});

test('mkdir is 201, passes all fields to the guest, and is logged', async () => {
  const fields = { path: '/w/d', mode: '2750', parents: false, user: 'app:staff' };
  const { status, body } = await harness.call('POST', `${base}/mkdir`, { body: fields });
  assert.deepEqual([status, body.type], [201, 'dir']);
  assert.deepEqual(harness.runner.files.changes.asked.at(-1), { route: 'mkdir', body: fields });
  await harness.call('POST', `${base}/mkdir`, { body: { path: '/w/e' } });
  assert.deepEqual(harness.runner.files.changes.asked.at(-1)?.body, { path: '/w/e', parents: true });
  assert.deepEqual((await readLog()).slice(-2), [
    { event: 'file.mkdir', data: { path: '/w/d' } },
    { event: 'file.mkdir', data: { path: '/w/e' } },
  ]);
});

test('a taken name is 409, and a refusal is not logged', async () => {
  const before = await readLog();
  harness.runner.files.changes.directories.add('/w/d');
  const body = { path: '/w/d', parents: false };
  const taken = await harness.call('POST', `${base}/mkdir`, { body });
  assert.deepEqual([taken.status, taken.body.error.code], [409, 'already_exists']);
  assert.deepEqual(await readLog(), before);
});

test('move, chmod and chown answer the entry and are logged', async () => {
  harness.runner.files.contents.set('/a', Buffer.from('1'));
  const moved = await harness.call('POST', `${base}/move`, { body: { from: '/a', to: '/b' } });
  assert.deepEqual([moved.status, moved.body.path], [200, '/b']);
  const mode = { path: '/b', mode: '0600', recursive: true };
  assert.equal((await harness.call('POST', `${base}/chmod`, { body: mode })).body.path, '/b');
  const owner = { path: '/b', user: '1000:1000' };
  assert.equal((await harness.call('POST', `${base}/chown`, { body: owner })).body.path, '/b');
  assert.deepEqual((await readLog()).slice(-3), [
    { event: 'file.move', data: { path: '/a', to: '/b' } },
    { event: 'file.chmod', data: mode },
    { event: 'file.chown', data: { ...owner, recursive: false } },
  ]);
});

test('a removal is 204 and logged, and recursive only when asked for', async () => {
  harness.runner.files.contents.set('/a', Buffer.from('1'));
  harness.runner.files.changes.directories.add('/d');
  assert.equal((await harness.call('DELETE', `${base}?path=/a`)).status, 204);
  assert.deepEqual(harness.runner.files.changes.asked.at(-1)?.body, { path: '/a', recursive: false });
  assert.equal((await harness.call('DELETE', `${base}?path=/d&recursive=true`)).status, 204);
  assert.equal((await harness.call('DELETE', `${base}?path=/d`)).status, 404);
  assert.deepEqual((await readLog()).slice(-2), [
    { event: 'file.remove', data: { path: '/a', recursive: false } },
    { event: 'file.remove', data: { path: '/d', recursive: true } },
  ]);
});

test('a change that fails in the guest is logged as not complete', async () => {
  harness.runner.files.changes.onChange = () => {
    throw new AppError('file_error', 'cannot remove /d/x: device or resource busy (EBUSY)');
  };
  const failed = await harness.call('DELETE', `${base}?path=/d&recursive=true`);
  assert.deepEqual([failed.status, failed.body.error.code], [400, 'file_error']);
  assert.deepEqual((await readLog()).at(-1), {
    event: 'file.remove',
    data: { path: '/d', recursive: true, complete: false },
  });
});

test('an invalid field is 400, is named, and reaches no guest', async () => {
  const count = harness.runner.files.changes.asked.length;
  for (const [path, body, field] of [
    ['mkdir', {}, 'path'],
    ['mkdir', { path: '/a\0b' }, 'path'],
    ['mkdir', { path: '/a', mode: '999' }, 'mode'],
    ['mkdir', { path: '/a', parents: 1 }, 'parents'],
    ['mkdir', { path: '/a', user: '' }, 'user'],
    ['move', { from: '/a' }, 'to'],
    ['move', { from: '', to: '/b' }, 'from'],
    ['move', { from: '/a', to: '/b', overwrite: 'yes' }, 'overwrite'],
    ['chmod', { path: '/a' }, 'mode'],
    ['chmod', { path: '/a', mode: 'u+x' }, 'mode'],
    ['chown', { path: '/a' }, 'user'],
    ['chown', { path: '/a', user: 'x', recursive: 'no' }, 'recursive'],
    ['chmod', { path: '/a', mode: '644', x: 1 }, 'x'],
  ] as const) {
    const refused = await harness.call('POST', `${base}/${path}`, { body });
    assert.equal(refused.status, 400, JSON.stringify(body));
    assert.match(refused.body.error.message, new RegExp(`\\b${field}\\b`), JSON.stringify(body));
  }
  for (const query of ['', '?path=', '?path=/a&recursive=1', '?path=/a&x=1'])
    assert.equal((await harness.call('DELETE', `${base}${query}`)).status, 400, query);
  assert.equal(harness.runner.files.changes.asked.length, count);
});
