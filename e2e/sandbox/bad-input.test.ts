import assert from 'node:assert/strict';
import net from 'node:net';
import { test } from 'node:test';
import { assertResources, hostResources } from '../fixtures/host/leaks.ts';
import { NODE_IMAGE, shared } from '../fixtures/service/shared.ts';

type Refused = [body: Record<string, unknown>, status: number, code: string, says: string];

const refusedCreates: Refused[] = [
  [{}, 400, 'invalid_request', 'image'],
  [{ image: 7 }, 400, 'invalid_request', 'image'],
  [{ image: '' }, 400, 'invalid_request', 'image'],
  [{ image: 'node' }, 400, 'image_not_pinned', 'node'],
  [{ image: 'node:latest' }, 400, 'image_not_pinned', 'latest'],
  [{ image: 'node:lts' }, 400, 'image_not_pinned', 'lts'],
  [{ image: 'node:stable' }, 400, 'image_not_pinned', 'stable'],
  [{ image: 'no/UPPER:1' }, 400, 'invalid_image', 'UPPER'],
  [{ image: 'coppice/other:1' }, 404, 'image_not_found', 'coppice/other'],
  [{ image: 'library/absent:1' }, 404, 'image_not_found', 'absent'],
  [{ image: 'node:22-slim', vcpus: 0 }, 400, 'invalid_request', 'vcpus'],
  [{ image: 'node:22-slim', vcpus: -1 }, 400, 'invalid_request', 'vcpus'],
  [{ image: 'node:22-slim', vcpus: 1.5 }, 400, 'invalid_request', 'vcpus'],
  [{ image: 'node:22-slim', vcpus: '1' }, 400, 'invalid_request', 'vcpus'],
  [{ image: 'node:22-slim', vcpus: 100_000 }, 400, 'invalid_request', 'vcpus'],
  [{ image: 'node:22-slim', mem_mib: 0 }, 400, 'invalid_request', 'mem_mib'],
  [{ image: 'node:22-slim', mem_mib: 1 }, 400, 'invalid_request', 'mem_mib'],
  [{ image: 'node:22-slim', mem_mib: 1e15 }, 400, 'invalid_request', 'mem_mib'],
  [{ image: 'node:22-slim', mem_mib: 260_000 }, 400, 'invalid_request', 'mem_mib'],
  [{ image: 'node:22-slim', disk_mib: 0 }, 400, 'invalid_request', 'disk_mib'],
  [{ image: 'node:22-slim', disk_mib: 1e12 }, 400, 'invalid_request', 'disk_mib'],
  [{ image: 'node:22-slim', timeout: -1 }, 400, 'invalid_request', 'timeout'],
  [{ image: 'node:22-slim', timeout: 'soon' }, 400, 'invalid_request', 'timeout'],
  [{ image: 'node:22-slim', labels: { a: 1 } }, 400, 'invalid_request', 'labels'],
  [{ image: 'node:22-slim', colour: 'red' }, 400, 'invalid_request', 'colour'],
  [{ image: 'node:22-slim', disk: 'nothing' }, 404, 'not_found', 'disk'],
  [{ image: 'node:22-slim', disk: 'No' }, 400, 'invalid_request', 'disk'],
  [{ image: 'node:22-slim', network: [] }, 400, 'invalid_request', 'network'],
  [{ image: 'node:22-slim', network: { allow: [''] } }, 400, 'invalid_request', 'network.allow[0]'],
  [{ image: 'node:22-slim', network: { allow: ['a.example:443'] } }, 400, 'invalid_request', 'network.allow'],
  [{ image: 'node:22-slim', network: { deny: ['10.1.2.3/8'] } }, 400, 'invalid_request', 'network.deny'],
  [{ image: 'node:22-slim', network: { allow: ['10.0.0.0/8'] } }, 400, 'invalid_request', 'network.allow'],
  [{ image: 'node:22-slim', network: { allow: ['0177.1'] } }, 400, 'invalid_request', 'network.allow'],
  [
    { image: 'node:22-slim', network: { allow: ['A.example.'], deny: ['a.example'] } },
    400,
    'invalid_request',
    'network',
  ],
  [{ image: 'node:22-slim', network_profile: 'nothing' }, 400, 'invalid_request', 'network_profile'],
  [
    { image: 'node:22-slim', network: {}, network_profile: 'locked-down' },
    400,
    'conflicting_options',
    'network_profile',
  ],
  [{ image: 'node:22-slim', credentials: { nobody: 'x' } }, 400, 'invalid_request', 'credentials'],
  [{ image: 'node:22-slim', credentials: { github: '' } }, 400, 'invalid_request', 'credentials.github'],
  [
    {
      image: 'node:22-slim',
      credentials_v2: { github: { key: 'x', endpoints: [{ methods: [], paths: ['/a/../b'] }] } },
    },
    400,
    'invalid_request',
    'credentials_v2.github.endpoints[0].paths[0]',
  ],
  [
    {
      image: 'node:22-slim',
      credentials: { github: 'x' },
      credentials_v2: { github: { key: 'x', endpoints: [] } },
    },
    400,
    'conflicting_options',
    'github',
  ],
];

test('an impossible create gets a clear 4xx and leaves nothing behind', async () => {
  const { api, service } = await shared();
  await api.destroy((await api.create({ image: NODE_IMAGE })).id);
  const before = hostResources(service);
  const listed = async () => (await api.call('GET', '/v1/runs')).text;
  const runs = await listed();
  for (const [body, status, code, says] of refusedCreates) {
    const answer = await api.call('POST', '/v1/runs', { body });
    const error = answer.body['error'] as Record<string, string> | undefined;
    const shown = `${JSON.stringify(body)}: ${answer.status} ${answer.text}`;
    assert.deepEqual([answer.status, error?.['code']], [status, code], shown);
    assert.ok(error?.['message']?.includes(says), shown);
    assert.equal(error?.['request_id'], answer.headers.get('x-request-id'), shown);
  }
  await assertResources(service, before);
  assert.equal(await listed(), runs);
});

test('a floating tag is refused before any network call', async () => {
  const { api, absentRegistry } = await shared();
  let connections = 0;
  const listener = net.createServer((socket) => {
    connections += 1;
    socket.destroy();
  });
  const port = Number(absentRegistry.split(':')[1]);
  await new Promise<void>((resolve) => listener.listen(port, '127.0.0.1', resolve));
  try {
    const answer = await api.call('POST', '/v1/runs', { body: { image: `${absentRegistry}/app:latest` } });
    assert.deepEqual([answer.status, connections], [400, 0]);
    const pinned = await api.call('POST', '/v1/runs', { body: { image: `${absentRegistry}/app:1` } });
    assert.equal(pinned.status, 502, pinned.text);
    assert.ok(connections > 0, 'the test would notice a network call');
  } finally {
    listener.close();
  }
});

test('a registry that is down gives a 502 that names it', async () => {
  const { api, absentRegistry } = await shared();
  const answer = await api.call('POST', '/v1/runs', { body: { image: `${absentRegistry}/app:1` } });
  assert.equal(answer.status, 502, answer.text);
  assert.ok(
    answer.text.includes('registry_unavailable') && answer.text.includes(absentRegistry),
    answer.text,
  );
});

test('a private registry address that the operator has not allowed gives a 400 that says so', async () => {
  const { api } = await shared();
  for (const registry of ['127.0.0.1:1', 'localhost:1', '169.254.169.254', '10.1.2.3:5000', '[::1]:5000']) {
    const answer = await api.call('POST', '/v1/runs', { body: { image: `${registry}/app:1` } });
    assert.equal(answer.status, 400, answer.text);
    for (const text of ['invalid_image', registry, 'COPPICE_INSECURE_REGISTRIES'])
      assert.ok(answer.text.includes(text), answer.text);
  }
});

test('broken JSON, wrong content types and unknown routes get errors of the same form', async () => {
  const { api } = await shared();
  const json = { 'content-type': 'application/json' };
  const cases: [Promise<{ status: number; text: string }>, number, string][] = [
    [api.call('POST', '/v1/runs', { raw: '{"image":', headers: json }), 400, 'invalid_request'],
    [api.call('POST', '/v1/runs', { raw: '[]', headers: json }), 400, 'invalid_request'],
    [
      api.call('POST', '/v1/runs', { raw: 'image=x', headers: { 'content-type': 'text/plain' } }),
      400,
      'Content-Type: must be application/json',
    ],
    [
      api.call('POST', '/v1/runs', { raw: `{"image":"${'x'.repeat(2 << 20)}"}`, headers: json }),
      413,
      'payload_too_large',
    ],
    [api.call('GET', '/v1/nothing'), 404, 'not_found'],
    [api.call('GET', '/v1/runs/run00000000000000000000'), 404, 'not_found'],
    [api.call('GET', '/v1/runs/..%2f..%2fetc'), 404, 'not_found'],
    [api.call('GET', '/v1/runs', { key: null }), 401, 'unauthorized'],
    [api.call('GET', '/v1/runs', { key: 'nonsense' }), 401, 'unauthorized'],
    [api.call('GET', '/v1/runs', { key: `cop_live_us_${'A'.repeat(40)}` }), 401, 'unauthorized'],
    [api.call('GET', '/v1/runs', { key: `cop_live_eu_${'A'.repeat(40)}` }), 401, 'eu'],
  ];
  for (const [call, status, says] of cases) {
    const answer = await call;
    assert.equal(answer.status, status, answer.text);
    assert.ok(answer.text.includes(says), answer.text);
  }
});

test('the log holds neither keys nor commands nor output', async () => {
  const { api, service } = await shared();
  const { id } = await api.create({ image: 'coppice/base:1', mem_mib: 256 });
  await api.exec(id, 'echo sesame-in-command-$((40 + 2))');
  await api.destroy(id);
  assert.ok(!service.output.includes('sesame-in-command'));
  assert.ok(!/"authorization"|Bearer/u.test(service.output));
});
