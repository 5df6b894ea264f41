/** Sandboxes with auto_hibernate: hibernated when idle, resumed by the next use. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { after, afterEach, before, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { startHarness, type ControlHarness } from '../testing/control-harness.ts';
import { SocketClient } from '../testing/requests/socket-client.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
afterEach(() => harness.runner.captures.reset());

const post = (id: string, what: string, body?: object) =>
  harness.call('POST', `/v1/runs/${id}/${what}`, body === undefined ? {} : { body });
const exec = (id: string) => post(id, 'exec', { command: 'true' });
const hibernated = (id: string) => harness.waitForRecord(id, (record) => record.status === 'hibernated');
const resumes = () => harness.runner.requests.filter((request) => request.startsWith('PUT /vms')).length;

test('an idle sandbox is hibernated, not destroyed, and the next command resumes it', async () => {
  const { id, auto_hibernate } = await harness.create({ timeout: 1, auto_hibernate: true });
  assert.equal(auto_hibernate, true);
  await hibernated(id);
  assert.equal((await exec(id)).status, 200);
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.status, 'running');
  await hibernated(id);
});

test('many requests at once resume a sandbox once', async () => {
  const { id } = await harness.create({ timeout: 0, auto_hibernate: true });
  await post(id, 'hibernate');
  const before = resumes();
  const answers = await Promise.all(Array.from({ length: 20 }, () => exec(id)));
  assert.deepEqual(new Set(answers.map((answer) => answer.status)), new Set([200]));
  assert.equal(resumes(), before + 1);
});

test('files, a shell, a terminal and a port resume a sandbox; reading its record does not', async (t) => {
  const { id } = await harness.create({ timeout: 0, auto_hibernate: true });
  const server = createServer((_request, response) => response.end('here')).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  harness.runner.ports.set(80, (server.address() as AddressInfo).port);
  harness.runner.files.contents.set('/a', Buffer.from('a'));
  const open = async (what: string) => {
    const socket = new SocketClient(harness, `/v1/runs/${id}/${what}`);
    await once(socket.socket, 'open');
    await harness.waitForRecord(id, (record) => record.status === 'running');
    socket.socket.close();
  };
  const uses: [string, () => Promise<unknown>][] = [
    ['a listing', () => harness.call('GET', `/v1/runs/${id}/files?path=/`)],
    [
      'a download',
      () => harness.fetch('GET', `/v1/runs/${id}/files/download?path=/a`).then((one) => one.text()),
    ],
    ['an upload', () => harness.call('POST', `/v1/runs/${id}/files/upload?path=/b`, { raw: 'x' })],
    ['a port', () => harness.fetch('GET', `/v1/runs/${id}/proxy/80/`).then((one) => one.text())],
    ['a shell', () => open('shell')],
    ['a terminal', () => open('terminal')],
  ];
  for (const [what, use] of uses) {
    await post(id, 'hibernate');
    assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.status, 'hibernated', what);
    await use();
    await harness.waitForRecord(id, (record) => record.status === 'running');
  }
});

test('a command that comes during the hibernation waits, and resumes the sandbox', async () => {
  const { id } = await harness.create({ timeout: 0, auto_hibernate: true });
  const gate = Promise.withResolvers<void>();
  harness.runner.captures.onHibernate = () => gate.promise;
  const hibernating = post(id, 'hibernate');
  await harness.waitForRecord(id, (record) => record.operation === 'hibernating');
  const used = exec(id);
  gate.resolve();
  assert.equal((await hibernating).status, 200);
  assert.equal((await used).status, 200);
});

test('a use that cannot resume the sandbox receives the reason, and the sandbox stays hibernated', async () => {
  const { id } = await harness.create({ timeout: 0, auto_hibernate: true });
  await post(id, 'hibernate');
  harness.runner.captures.onRestore = () => {
    throw new AppError('capacity', 'no room in memory');
  };
  const answer = await exec(id);
  assert.equal(answer.status, 429);
  assert.equal(answer.body.error.message, 'no room in memory');
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.status, 'hibernated');
});

test('a fork, a snapshot and a rollback are refused until the sandbox is resumed', async () => {
  const { id } = await harness.create({ timeout: 0, auto_hibernate: true });
  const snapshot = (await post(id, 'snapshot')).body.id as string;
  await post(id, 'hibernate');
  for (const [what, body] of [
    ['fork', {}],
    ['snapshot', {}],
    ['rollback', { snapshot_id: snapshot }],
  ] as const)
    assert.equal((await post(id, what, body)).status, 409, what);
});

test('the end of its lifetime destroys a hibernated sandbox', async () => {
  const { id } = await harness.create({ timeout: 0, max_lifetime: 1, auto_hibernate: true });
  await post(id, 'hibernate');
  const record = await harness.waitForRecord(id, ({ status }) => status === 'destroyed');
  assert.equal(record.status_reason, 'max_lifetime');
});
