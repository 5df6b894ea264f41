import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { AppError, generateApiKey } from '@coppice/contract';
import { revokeApiKey } from '../auth/api-key-store.ts';
import {
  API_KEY,
  startHarness,
  waitFor,
  type CallOptions,
  type ControlHarness,
} from '../testing/control-harness.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());

const image = 'node:22-slim';
const json = { 'content-type': 'application/json' };

test('a missing, a malformed and an unknown key get 401', async () => {
  for (const apiKey of [null, 'nonsense', generateApiKey('us'), `${API_KEY}x`]) {
    const answer = await harness.call('GET', '/v1/runs', { apiKey });
    assert.equal(answer.status, 401);
    assert.equal(answer.body.error.code, 'unauthorized');
    assert.equal(answer.headers.get('www-authenticate'), 'Bearer');
  }
  const basic = await harness.call('GET', '/v1/runs', {
    apiKey: null,
    headers: { authorization: 'Basic abc' },
  });
  assert.match(basic.body.error.message, /is not "Bearer <API key>"/);
});

test('a key of another region gets 401 with the region it belongs to', async () => {
  const answer = await harness.call('GET', '/v1/runs', { apiKey: generateApiKey('eu') });
  assert.equal(answer.status, 401);
  assert.match(answer.body.error.message, /belongs to region "eu"/);
});

test('a path written in escapes needs the key, too', async () => {
  const answer = await harness.call('GET', '/%76%31/runs', { apiKey: null });
  assert.equal(answer.status, 401);
});

test('a revoked key is refused from the next request on', async () => {
  const apiKey = await harness.addOrganization();
  assert.equal((await harness.call('GET', '/v1/runs', { apiKey })).status, 200);
  await using db = harness.openDatabase();
  await revokeApiKey(db, apiKey);
  assert.equal((await harness.call('GET', '/v1/runs', { apiKey })).status, 401);
});

test('sandboxes of another organization look absent', async () => {
  const sandbox = await harness.create();
  const apiKey = await harness.addOrganization();
  const path = `/v1/runs/${sandbox.id}`;
  const unknown = `/v1/runs/run${'0'.repeat(20)}`;
  const calls: [string, string, CallOptions][] = [
    ['GET', '', {}],
    ['DELETE', '', {}],
    ['PATCH', '', { body: {} }],
    ['POST', '/exec', { body: { command: 'true' } }],
    ['POST', '/files/upload?path=/a', { raw: 'x' }],
    ['GET', '/files/download?path=/a', {}],
    ['GET', '/files?path=/', {}],
    ['POST', '/fork', { body: { count: 2 } }],
    ['POST', '/snapshot', { body: { name: 'mine' } }],
    ['POST', '/hibernate', {}],
    ['POST', '/resume', {}],
    ['POST', '/rollback', { body: { snapshot_id: `snap${'0'.repeat(20)}` } }],
    ['GET', '/tree', {}],
  ];
  for (const [method, suffix, options] of calls) {
    const theirs = await harness.call(method, path + suffix, { ...options, apiKey });
    const nobodys = await harness.call(method, unknown + suffix, { ...options, apiKey });
    assert.equal(theirs.status, 404, `${method} ${suffix}`);
    assert.equal(
      theirs.body.error.message.replace(sandbox.id, ''),
      nobodys.body.error.message.replace(unknown.slice(9), ''),
    );
  }
  assert.deepEqual((await harness.call('GET', '/v1/runs', { apiKey })).body, []);
  assert.equal((await harness.call('GET', path)).body.status, 'running');
});

const BAD: [
  what: string,
  method: string,
  path: string,
  options: CallOptions,
  status: number,
  code: string,
][] = [
  ['an unknown route', 'GET', '/nothing', {}, 404, 'not_found'],
  ['an unknown sandbox', 'GET', '/v1/runs/run00', {}, 404, 'not_found'],
  ['an id of 101 characters', 'GET', `/v1/runs/${'a'.repeat(101)}`, {}, 404, 'not_found'],
  ['an id of 201 characters', 'GET', `/v1/runs/${'a'.repeat(201)}`, {}, 400, 'invalid_request'],
  ['a path of 16 000 characters', 'GET', `/v1/runs/${'a'.repeat(16_000)}`, {}, 400, 'invalid_request'],
  ['QUERY without a type', 'QUERY', '/v1/runs', {}, 405, 'method_not_allowed'],
  ['QUERY of a path without it', 'QUERY', '/v1/runs', { body: {} }, 405, 'method_not_allowed'],
  [
    'half a character in a label',
    'POST',
    '/v1/runs',
    { body: { image, labels: { a: '\ud800' } } },
    400,
    'invalid_request',
  ],
  ['NUL in a query', 'GET', '/v1/snapshots?run_id=%00', {}, 400, 'invalid_request'],
  ['NUL in an id', 'GET', '/v1/runs/%00', {}, 400, 'invalid_request'],
  ['a broken escape in the path', 'GET', '/v1/runs/%zz', {}, 400, 'invalid_request'],
  ['broken JSON', 'POST', '/v1/runs', { raw: '{"image": x}', headers: json }, 400, 'invalid_request'],
  ['JSON that ends early', 'POST', '/v1/runs', { raw: '{"image": ', headers: json }, 400, 'invalid_request'],
  [
    'a prototype in JSON',
    'POST',
    '/v1/runs',
    { raw: '{"__proto__": {}}', headers: json },
    400,
    'invalid_request',
  ],
  ['no body', 'POST', '/v1/runs', { headers: json }, 400, 'invalid_request'],
  ['a body whose type is not JSON', 'POST', '/v1/runs', { raw: 'x' }, 400, 'invalid_request'],
  ['an unknown field', 'POST', '/v1/runs', { body: { image, colour: 1 } }, 400, 'invalid_request'],
  ['a disk that does not exist', 'POST', '/v1/runs', { body: { image, disk: 'd' } }, 404, 'not_found'],
  ['a floating tag', 'POST', '/v1/runs', { body: { image: 'node:latest' } }, 400, 'image_not_pinned'],
  ['no tag', 'POST', '/v1/runs', { body: { image: 'node' } }, 400, 'image_not_pinned'],
  ['an unreadable reference', 'POST', '/v1/runs', { body: { image: 'NODE!:1' } }, 400, 'invalid_image'],
  [
    'too many vcpus for the machine',
    'POST',
    '/v1/runs',
    { body: { image, vcpus: 9 } },
    400,
    'invalid_request',
  ],
  [
    'too much memory for the machine',
    'POST',
    '/v1/runs',
    { body: { image, mem_mib: 9000 } },
    400,
    'invalid_request',
  ],
  [
    'a body over the limit',
    'POST',
    '/v1/runs',
    { body: { image: 'x'.repeat(2 << 20) } },
    413,
    'payload_too_large',
  ],
  ['null as the body', 'PATCH', '/v1/runs/run0', { raw: 'null', headers: json }, 400, 'invalid_request'],
  ['a method that the path lacks', 'PUT', '/v1/runs', {}, 405, 'method_not_allowed'],
  ['a foreign cursor', 'GET', '/v1/runs?cursor=abc', {}, 400, 'invalid_request'],
  ['an unknown query field', 'GET', '/v1/runs?offset=1', {}, 400, 'invalid_request'],
  [
    'a bad Idempotency-Key',
    'POST',
    '/v1/runs',
    { body: { image }, headers: { 'idempotency-key': 'a b' } },
    400,
    'invalid_request',
  ],
];

for (const [what, method, path, options, status, code] of BAD) {
  test(`${what} gets ${status} ${code} with the error body`, async () => {
    harness.runner.maxVcpus = 8;
    harness.runner.maxMemMib = 8192;
    const before = harness.runner.vms.size;
    const answer = await harness.call(method, path, options);
    assert.equal(answer.status, status, JSON.stringify(answer.body));
    assert.equal(answer.body.error.code, code);
    assert.equal(answer.body.error.request_id, answer.headers.get('x-request-id'));
    assert.equal(harness.runner.vms.size, before);
  });
}

test('a method that a path lacks is answered with the methods that it has', async () => {
  const { headers } = await harness.call('PUT', '/v1/runs/run0');
  assert.equal(headers.get('allow'), 'DELETE, GET, PATCH');
  const history = await harness.call('PUT', '/v1/runs/history');
  assert.equal(history.headers.get('allow'), 'GET');
});

test('broken JSON is answered with the position of the error', async () => {
  const answer = await harness.call('POST', '/v1/runs', { raw: '{\n "image": x}', headers: json });
  assert.match(answer.body.error.message, /position 12 \(line 2, column 11\)/);
});

test('a body of another type gets an error that names the right type, and an empty one is no body', async () => {
  for (const type of [
    'text/plain',
    'text/plain;charset=UTF-8',
    'application/x-www-form-urlencoded',
    'text/html',
  ]) {
    const headers = { 'content-type': type };
    const { status, body } = await harness.call('POST', '/v1/runs', { raw: '{"image":"a:1"}', headers });
    assert.deepEqual([status, body.error.message], [400, 'Content-Type: must be application/json'], type);
  }
  const { id } = await harness.create();
  const headers = { 'content-type': 'text/plain' };
  const answer = await harness.call('PATCH', `/v1/runs/${id}`, { raw: '', headers });
  assert.equal(answer.status, 200, JSON.stringify(answer.body));
});

test("the machine's own limit is in the message", async () => {
  harness.runner.maxVcpus = 4;
  const answer = await harness.call('POST', '/v1/runs', { body: { image, vcpus: 5 } });
  assert.equal(answer.body.error.message, 'vcpus: must be at most 4 on this machine');
});

test('a create without room gets 429 with the time to wait, and leaves no record', async (t) => {
  t.after(() => (harness.runner.onAdmission = () => undefined));
  harness.runner.onAdmission = () => {
    throw new AppError('capacity', 'vcpus: 1 needed, 0 of 4 are unreserved');
  };
  const before = await harness.call('GET', '/v1/runs?status=failed');
  const answer = await harness.call('POST', '/v1/runs', { body: { image } });
  assert.equal(answer.status, 429);
  assert.equal(answer.body.error.message, 'vcpus: 1 needed, 0 of 4 are unreserved');
  assert.ok(Number(answer.headers.get('retry-after')) > 0);
  assert.deepEqual((await harness.call('GET', '/v1/runs?status=failed')).body, before.body);
});

test('a request that is not HTTP gets the error body, too', async () => {
  const { port } = new URL(harness.control?.address ?? '');
  const socket = connect(Number(port), '127.0.0.1');
  socket.end('nonsense\r\n\r\n');
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString();
  assert.match(text, /^HTTP\/1\.1 400 /);
  assert.match(text, /"code":"invalid_request"/);
});

test("a caller's request id is returned and logged, and a malformed one is replaced", async () => {
  const given = await harness.call('GET', '/healthz', { headers: { 'x-request-id': 'mine-1' } });
  assert.equal(given.headers.get('x-request-id'), 'mine-1');
  // The service writes the line after it sends the answer, which the client may receive first.
  await waitFor('the log line', () =>
    harness.logLines.some((line) => line.includes('"request_id":"mine-1"')),
  );
  const bad = await harness.call('GET', '/healthz', { headers: { 'x-request-id': 'a b' } });
  assert.match(bad.headers.get('x-request-id') ?? '', /^req[0-9a-f]{20}$/);
});

test('the log contains no key, command, file name or output', async () => {
  const { id } = await harness.create();
  harness.runner.onExec = (command) => {
    command.stdout('secret-output');
    command.exit(0);
  };
  await harness.call('POST', `/v1/runs/${id}/exec`, {
    body: { command: 'secret-command', env: { A: 'secret-env' } },
  });
  await harness.call('GET', `/v1/runs/${id}/files/download?path=/secret-file&token=secret-token`);
  const log = harness.logLines.join('');
  assert.ok(log.includes(id));
  for (const secret of [
    API_KEY,
    'secret-command',
    'secret-env',
    'secret-output',
    'secret-file',
    'secret-token',
  ]) {
    assert.ok(!log.includes(secret), secret);
  }
});

test('a list is paged by its Link header and filtered by label and status', async () => {
  const apiKey = await harness.addOrganization();
  const create = async (labels: Record<string, string>) =>
    (await harness.call('POST', '/v1/runs', { apiKey, body: { image, labels } })).body.id as string;
  const ids = [
    await create({ n: '1', team: 'a' }),
    await create({ n: '2', team: 'b:c' }),
    await create({ n: '3', team: 'a' }),
  ];
  const list = async (query: string) => harness.call('GET', `/v1/runs${query}`, { apiKey });
  const idsOf = (answer: { body: { id: string }[] }) => answer.body.map((record) => record.id);

  const first = await list('?limit=2');
  assert.deepEqual(idsOf(first), [ids[2], ids[1]]);
  const next = /^<(\/v1\/runs[^>]+)>; rel="next"$/.exec(first.headers.get('link') ?? '')?.[1] ?? '';
  const second = await harness.call('GET', next, { apiKey });
  assert.deepEqual(idsOf(second), [ids[0]]);
  assert.equal(second.headers.get('link'), null);

  assert.deepEqual(idsOf(await list('?label=team:a')), [ids[2], ids[0]]);
  assert.deepEqual(idsOf(await list('?label=team:b:c')), [ids[1]]);
  assert.deepEqual(idsOf(await list('?label=team:a&label=n:1')), [ids[0]]);
  assert.deepEqual(idsOf(await list('?label=constructor:a')), []);
  assert.deepEqual(idsOf(await list('?label=__proto__:a')), []);

  await harness.call('DELETE', `/v1/runs/${ids[1]}`, { apiKey });
  assert.deepEqual(idsOf(await list('')), [ids[2], ids[0]]);
  assert.deepEqual(idsOf(await list('?status=destroyed')), [ids[1]]);
  assert.equal((await list('?status=destroyed&status=running')).body.length, 3);
});

test('a full runner is 429 capacity with Retry-After', async () => {
  const { AppError } = await import('@coppice/contract');
  harness.runner.onCreate = () => {
    throw new AppError('capacity', 'the machine has no room');
  };
  const answer = await harness.call('POST', '/v1/runs', { body: { image } });
  harness.runner.onCreate = () => undefined;
  assert.equal(answer.status, 429);
  assert.equal(answer.body.error.code, 'capacity');
  assert.equal(answer.headers.get('retry-after'), '5');
});

test('an upgrade that is refused before routing is answered, and its connection ends', async () => {
  const { hostname, port } = new URL(harness.address);
  const socket = connect({ host: hostname, port: Number(port), timeout: 10_000 });
  socket.once('timeout', () => socket.destroy(new Error('the connection was left open')));
  socket.write('GET /%zz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
  let heard = '';
  for await (const chunk of socket) heard += String(chunk);
  assert.match(heard, /^HTTP\/1\.1 400 .*"invalid_request"/su);
});

test('an internal fault is 500 with a text that reveals nothing', async () => {
  harness.runner.onCreate = () => {
    throw new Error('secret internals');
  };
  const answer = await harness.call('POST', '/v1/runs', { body: { image } });
  harness.runner.onCreate = () => undefined;
  assert.equal(answer.status, 500);
  assert.ok(!JSON.stringify(answer.body).includes('secret'));
  assert.ok(
    harness.logLines.some(
      (line) => line.includes(answer.body.error.request_id) && line.includes('"level":50'),
    ),
  );
});
