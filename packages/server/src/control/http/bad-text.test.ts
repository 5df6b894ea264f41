/** Text that cannot be stored is refused at the edge; bytes for the guest are not checked. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request as sendRequest, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { API_KEY, startHarness, type CallOptions, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
let id = '';
before(async () => {
  harness = await startHarness();
  ({ id } = await harness.create());
});
after(() => harness[Symbol.asyncDispose]());

const NUL = 'must not contain a NUL character';
const image = 'node:22-slim';
const ofPerson = (): CallOptions => ({ apiKey: null, headers: { origin: harness.address } });

const REFUSED: [method: string, path: string, options: () => CallOptions, message: string][] = [
  ['DELETE', '/v1/snapshots/a%00b', () => ({}), `id: ${NUL}`],
  ['GET', '/v1/runs/%00/proxy/80/', () => ({}), `id: ${NUL}`],
  ['GET', '/v1/snapshots?run_id=%00', () => ({}), `run_id: ${NUL}`],
  ['POST', '/v1/runs', () => ({ body: { image, labels: { a: '\0' } } }), `labels.a: ${NUL}`],
  [
    'POST',
    '/v1/runs/restore',
    () => ({ body: { snapshot_id: '\ud800' } }),
    'snapshot_id: must be valid Unicode',
  ],
  [
    'POST',
    '/account/sign-in',
    () => ({ ...ofPerson(), body: { email: 'a\0@b', password: 'x' } }),
    `email: ${NUL}`,
  ],
];

for (const [method, path, options, message] of REFUSED) {
  test(`${method} ${path} with "${message}" is refused before any lookup`, async () => {
    const { status, body } = await harness.call(method, path, options());
    assert.deepEqual([status, body.error.code], [400, 'invalid_request']);
    assert.equal(body.error.message, message);
  });
}

test('a caller without a key does not learn what is wrong with a path', async () => {
  const { status } = await harness.call('DELETE', '/v1/snapshots/%00', { apiKey: null });
  assert.equal(status, 401);
});

test('standard input, uploads and proxied requests carry every byte', async () => {
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  harness.runner.onExec = (command) => {
    command.stdout(command.stdin);
    command.exit(0);
  };
  const { body } = await harness.call('POST', `/v1/runs/${id}/exec`, {
    body: { command: 'cat', stdin: 'a\0b' },
  });
  assert.equal(body.stdout, 'a\0b');
  const uploaded = await harness.call('POST', `/v1/runs/${id}/files/upload?path=/bytes`, { raw: bytes });
  assert.equal(uploaded.status, 200);
  assert.deepEqual(harness.runner.files.contents.get('/bytes'), bytes);
  assert.deepEqual(await echo('/a%00b?c=%00', bytes), ['/a%00b?c=%00', bytes]);
});

/** Returns the target and body that a service in the sandbox sees. */
async function echo(target: string, content: Buffer): Promise<[string | undefined, Buffer]> {
  await using service = createServer((request, response) => {
    response.setHeader('x-seen', request.url ?? '');
    request.pipe(response);
  });
  service.listen(0, '127.0.0.1');
  await once(service, 'listening');
  harness.runner.ports.set(80, (service.address() as AddressInfo).port);
  const { hostname, port } = new URL(harness.address);
  const sent = sendRequest({
    hostname,
    port,
    method: 'POST',
    path: `/v1/runs/${id}/proxy/80${target}`,
    headers: { authorization: `Bearer ${API_KEY}` },
  });
  sent.end(content);
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of answer) chunks.push(chunk as Buffer);
  service.closeAllConnections();
  return [answer.headers['x-seen'] as string | undefined, Buffer.concat(chunks)];
}
