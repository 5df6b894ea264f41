/** SSH: control carries bytes that it cannot read, between an authenticated client and a server that may be hostile. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { FRAME } from '../../../lib/protocol/frames.ts';
import { startHarness, waitFor, type ControlHarness } from '../../testing/control-harness.ts';
import type { FakeProcess } from '../../testing/fakes/fake-runner.ts';
import { SocketClient } from '../../testing/requests/socket-client.ts';

const EXIT = '{"exit_code":0,"timed_out":false}';

let harness: ControlHarness;
let id = '';
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(async () => {
  harness.runner.onAgent = () => false;
  ({ id } = await harness.create());
});

const open = (query = '', options: { key?: string | null } = {}): SocketClient =>
  new SocketClient(harness, `/v1/runs/${id}/ssh/ws${query}`, options);

function nextConnection(): Promise<FakeProcess> {
  const started = Promise.withResolvers<FakeProcess>();
  harness.runner.onSsh = started.resolve;
  return started.promise;
}

/** Lets the agent give this answer to the question for the host key. */
function answerKey(status: number, body: object): void {
  harness.runner.onAgent = (_of, stream) => {
    stream.respond({ ':status': status, 'content-type': 'application/json' });
    stream.end(JSON.stringify(body));
    return true;
  };
}

test('a connection carries bytes both ways and is in the audit log', async () => {
  const started = nextConnection();
  const client = open('?user=node');
  const server = await started;
  assert.deepEqual(server.head, { user: 'node' });
  await client.send(Buffer.from([0x00, 0xff]));
  await waitFor('the bytes', () => server.input.length === 1);
  assert.deepEqual(
    server.input.map(({ type, payload }) => [type, payload.toString('hex')]),
    [[FRAME.stdin, '00ff']],
  );
  server.send(FRAME.stderr, 'a log of the server, for nobody');
  server.send(FRAME.stdout, Buffer.from([0xfe]));
  server.send(FRAME.exit, EXIT);
  assert.equal((await client.closed).code, 1000);
  assert.equal(client.bytes.toString('hex'), 'fe');
  assert.deepEqual(client.received, [{ type: 'ssh_closed' }]);
  const log = await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text();
  assert.match(log, /"ssh\.opened","data":\{"user":"node"\}|"data":\{"user":"node"\},"event":"ssh\.opened"/u);
  assert.match(log, /ssh\.closed/u);
});

test('a client that leaves ends its server', async () => {
  const started = nextConnection();
  const client = open();
  const server = await started;
  client.socket.terminate();
  await waitFor('the end of the server', () => server.stream.closed);
});

test('text in the place of SSH is refused', async () => {
  harness.runner.onSsh = () => undefined;
  const client = open();
  await client.send('hello');
  assert.equal((await client.closed).code, 1008);
  assert.match(JSON.stringify(client.received), /send SSH as binary messages/u);
});

test('the key of the API is needed, and not in the URL', async () => {
  await assert.rejects(open('', { key: null }).closed, /401/u);
});

test('a sandbox whose agent is older says so, before and after the upgrade', async () => {
  const error = { code: 'agent_outdated', message: 'create a new sandbox' };
  answerKey(409, { error });
  const { status, body } = await harness.call('GET', `/v1/runs/${id}/ssh`);
  assert.deepEqual([status, body.error.code], [409, 'agent_outdated']);
  const client = open();
  assert.equal((await client.closed).code, 1008);
  assert.match(JSON.stringify(client.received), /"agent_outdated".*create a new sandbox/u);
});

test('the host key is passed on', async () => {
  const { status, body } = await harness.call('GET', `/v1/runs/${id}/ssh`);
  assert.deepEqual([status, body], [200, { host_key: harness.runner.hostKey }]);
});

test('a guest cannot put anything but a key into a line of known hosts', async () => {
  const key = harness.runner.hostKey;
  const bad = [
    `${key}\n* ssh-rsa AAAA`,
    `@cert-authority * ${key}`,
    'ssh-rsa AAAAB3NzaC1yc2E=',
    `${key} x`,
    '',
  ];
  for (const host_key of bad) {
    answerKey(200, { host_key });
    const { status, body } = await harness.call('GET', `/v1/runs/${id}/ssh`);
    assert.deepEqual([status, body.error.code], [502, 'guest_unreachable'], JSON.stringify(host_key));
  }
});
