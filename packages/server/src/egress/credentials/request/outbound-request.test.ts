import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CredentialEndpoint } from '@coppice/contract';
import { accepted, build, refused, SECRET } from '../testing/proxied-request.ts';

test("each service gets the secret in its own header, and the guest's value is removed", () => {
  const forms: [name: string, host: string, header: string, value: string][] = [
    ['openai', 'api.openai.com', 'authorization', `Bearer ${SECRET}`],
    ['anthropic', 'api.anthropic.com', 'x-api-key', SECRET],
    ['google', 'generativelanguage.googleapis.com', 'x-goog-api-key', SECRET],
    ['github', 'api.github.com', 'authorization', `Bearer ${SECRET}`],
    ['huggingface', 'router.huggingface.co', 'authorization', `Bearer ${SECRET}`],
    [
      'acme',
      'api.acme.example',
      'authorization',
      `Basic ${Buffer.from(`x-access-token:${SECRET}`).toString('base64')}`,
    ],
  ];
  const own = [
    'Authorization',
    'AUTHORIZATION',
    'X-Api-Key',
    'x_api_key',
    'X-Goog-Api-Key',
    'Api-Key',
    'Cookie',
    'Proxy-Authorization',
    'X-Goog_Api-Key',
  ];
  for (const [name, host, header, value] of forms) {
    const { headers, host: dialled } = accepted(name, {
      rest: '/x',
      headers: own.flatMap((one) => [one, 'evil']),
    });
    assert.equal(dialled, host);
    assert.deepEqual(headers.get(header), [value]);
    assert.ok(![...headers.values()].flat().some((one) => one.includes('evil')), name);
  }
});

test('the base path of OpenAI occurs once for every form of the client’s base URL', () => {
  const endpoints: CredentialEndpoint[] = [{ methods: ['POST'], paths: ['/v1/chat/completions'] }];
  for (const rest of ['/chat/completions', '/v1/chat/completions', '/v1//chat/%63ompletions'])
    assert.equal(accepted('openai', { rest, endpoints }).target, '/v1/chat/completions');
  assert.equal(refused('openai', { rest: '/v1/../chat/completions', endpoints }), 'path');
  assert.equal(refused('openai', { rest: '/v1/files', endpoints }), 'endpoint-rule');
  assert.equal(refused('openai', { rest: '/chat/completions', endpoints, method: 'GET' }), 'endpoint-rule');
});

test('host, hop-by-hop and routing fields of the guest are not forwarded', () => {
  const names = [
    'Host',
    'Connection',
    'Keep-Alive',
    'TE',
    'Trailer',
    'Expect',
    'Forwarded',
    'Via',
    'X-Forwarded-For',
    'X-Forwarded-Host',
    'X-Real-IP',
    'Proxy-Connection',
    'HTTP2-Settings',
  ];
  const { headers } = accepted('acme', {
    headers: [
      ...names.flatMap((name) => [name, 'evil']),
      'Connection',
      'close, X-Hop',
      'X-Hop',
      'evil',
      'Upgrade',
      'h2c',
      'X-Acme-Team',
      'evil',
      'Accept',
      'a/b',
      'accept',
      'c/d',
    ],
  });
  assert.deepEqual(headers.get('host'), ['api.acme.example:8443']);
  assert.deepEqual(headers.get('accept'), ['a/b', 'c/d']);
  assert.deepEqual(headers.get('x-acme-team'), ['blue']);
  assert.deepEqual([...headers.keys()].sort(), [
    'accept',
    'authorization',
    'content-length',
    'host',
    'x-acme-team',
  ]);
});

test('defaults of a service are used only for fields that the guest does not send', () => {
  assert.deepEqual(accepted('anthropic', {}).headers.get('anthropic-version'), ['2023-06-01']);
  const own = accepted('anthropic', { headers: ['Anthropic-Version', '2024-01-01'] });
  assert.deepEqual(own.headers.get('anthropic-version'), ['2024-01-01']);
});

test('keys in the query are dropped in every spelling, and other parameters are not changed', () => {
  const query = (name: string, raw: string): string => accepted(name, { rest: `/x?${raw}` }).target;
  assert.equal(query('google', 'key=evil&alt=sse&KEY=evil&%6bey=evil'), '/x?alt=sse');
  assert.equal(query('google', 'a=1;key=evil&b=2'), '/x?b=2');
  assert.equal(query('google', 'key'), '/x');
  assert.equal(query('github', 'key=mine&access_token=evil&q=a%20b+c'), '/x?key=mine&q=a%20b+c');
  assert.equal(query('github', 'access_token%00=evil&access_token[]=evil'), '/x');
  assert.equal(accepted('google', { rest: '/x?key=evil' }).path, '/x');
});

test('no request can override its judged method, path or headers', () => {
  for (const name of [
    'X-HTTP-Method-Override',
    'X_HTTP_Method_Override',
    'X-Method-Override',
    'X-HTTP-Method',
    'X-Original-URL',
    'X-Rewrite-Url',
  ])
    assert.equal(refused('google', { headers: [name, 'DELETE'] }), 'override');
  for (const query of ['$httpMethod=DELETE', '%24httpHeaders=a', '_method=put', 'x-http-method-override=PUT'])
    assert.equal(refused('google', { rest: `/x?${query}` }), 'override');
  for (const method of ['TRACE', 'CONNECT', 'get', 'FOO', '', 'GET '])
    assert.equal(refused('github', { method }), 'method');
});

test('a body has exactly one framing', () => {
  const framing = (...headers: string[]): string => {
    const result = build('openai', { headers });
    if (!result.ok) return result.refusal.reason;
    return result.value.fields
      .filter(([name]) => /length|encoding/u.test(name))
      .flat()
      .join(' ');
  };
  assert.equal(framing('Content-Length', '12'), 'content-length 12');
  assert.equal(framing(), 'content-length 0');
  assert.equal(accepted('openai', { method: 'GET' }).headers.has('content-length'), false);
  assert.equal(framing('Transfer-Encoding', 'Chunked'), 'transfer-encoding chunked');
  assert.equal(framing('Content-Length', '1', 'Connection', 'content-length'), 'content-length 1');
  const bad = [
    ['Content-Length', '1', 'Transfer-Encoding', 'chunked'],
    ['Content-Length', '1', 'Content-Length', '1'],
    ['Content-Length', '+1'],
    ['Content-Length', '1, 1'],
    ['Content-Length', '0x1'],
    ['Transfer-Encoding', 'gzip, chunked'],
    ['Transfer-Encoding', 'identity'],
    ['Content-Length', ''],
  ];
  for (const headers of bad) assert.equal(framing(...headers), 'framing', headers.join(' '));
});

test('malformed and oversized headers are refused', () => {
  for (const headers of [
    ['a b', 'c'],
    ['a', 'b\r\nc'],
    ['a', 'b\0'],
    ['', 'a'],
    ['a:', 'b'],
    ['a'],
    ['a', 'b\u{100}'],
  ])
    assert.equal(refused('openai', { headers }), 'headers');
  assert.equal(refused('openai', { headers: Array.from({ length: 300 }, () => 'a') }), 'headers-too-large');
  assert.equal(refused('openai', { headers: ['a', 'b'.repeat(70_000)] }), 'headers-too-large');
  assert.equal(refused('openai', { rest: `/x?${'a'.repeat(9000)}` }), 'path-too-long');
});

const UPGRADE = [
  'Connection',
  'keep-alive, Upgrade',
  'Upgrade',
  'websocket',
  'Sec-WebSocket-Version',
  '13',
  'Sec-WebSocket-Key',
  'AAAAAAAAAAAAAAAAAAAAAA==',
];

test('a WebSocket is forwarded if the service supports it, without the keys in its subprotocols', () => {
  const headers = [
    ...UPGRADE,
    'Sec-WebSocket-Protocol',
    'realtime, openai-insecure-api-key.evil',
    'sec-websocket-extensions',
    'permessage-deflate',
  ];
  const sent = accepted('openai', { method: 'GET', rest: '/realtime?model=m', headers });
  assert.ok(sent.isUpgrade);
  assert.equal(sent.target, '/v1/realtime?model=m');
  assert.deepEqual(sent.headers.get('upgrade'), ['websocket']);
  assert.deepEqual(sent.headers.get('connection'), ['Upgrade']);
  assert.deepEqual(sent.headers.get('sec-websocket-protocol'), ['realtime']);
  assert.deepEqual(sent.headers.get('sec-websocket-extensions'), ['permessage-deflate']);
  assert.equal(refused('anthropic', { method: 'GET', headers: UPGRADE }), 'upgrade');
  assert.equal(refused('openai', { method: 'POST', headers: UPGRADE }), 'upgrade');
  assert.equal(refused('openai', { method: 'GET', headers: [...UPGRADE, 'Upgrade', 'h2c'] }), 'upgrade');
  assert.equal(refused('openai', { method: 'GET', headers: [...UPGRADE, 'Content-Length', '5'] }), 'upgrade');
  assert.equal(refused('openai', { method: 'GET', headers: UPGRADE.slice(0, 6) }), 'upgrade');
});
