import assert from 'node:assert/strict';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { test } from 'node:test';
import { CANARY, grantOf, ProxyFixture, serviceOf, waitFor } from './testing/proxy-fixture.ts';

const OPENAI = 'api.openai.com';

async function startWith(handler: RequestListener): Promise<ProxyFixture> {
  const fixture = await ProxyFixture.start();
  await fixture.network.serve(OPENAI, handler);
  fixture.guest.grant(grantOf('openai'));
  return fixture;
}

const ok: RequestListener = (_request, response) => void response.end('ok');

test('a request is sent to the host of the service with the secret, and its answer is returned', async () => {
  const seen: IncomingMessage[] = [];
  await using fixture = await startWith((request, response) => {
    seen.push(request);
    request.resume().once('end', () => response.writeHead(201, { 'x-made': 'yes' }).end('made'));
  });
  const answer = await fixture.ask('openai/chat/completions?a=1', {
    method: 'POST',
    headers: {
      authorization: 'Bearer sk-coppice-placeholder',
      'x-api-key': 'other',
      'content-type': 'text/plain',
    },
    body: 'hello',
  });
  assert.equal(answer.status, 201);
  assert.equal(answer.body, 'made');
  assert.equal(answer.headers['x-made'], 'yes');
  const [request] = seen;
  assert.equal(request?.url, '/v1/chat/completions?a=1');
  assert.equal(request?.headers.authorization, `Bearer ${CANARY}`);
  assert.equal(request?.headers.host, OPENAI);
  assert.equal(request?.headers['x-api-key'], undefined);
  assert.equal(request?.headers['content-length'], '5');
  assert.deepEqual(fixture.network.dialled, [OPENAI]);
  assert.deepEqual(fixture.guest.proxied, ['openai POST /v1/chat/completions 201']);
  assert.equal(fixture.guest.counts.get('requests_proxied'), 1);
});

test('the head of the answer waits for its note', async () => {
  await using fixture = await startWith(ok);
  const recorded = Promise.withResolvers<void>();
  fixture.guest.recorded = recorded.promise;
  const client = await fixture.open();
  client.write('GET /proxy/openai/models HTTP/1.1\r\nHost: x\r\n\r\n');
  await waitFor('the request at the service', () => fixture.guest.counts.get('requests_proxied') === 1);
  assert.equal(client.received, '');
  recorded.resolve();
  assert.match(await client.until(/ok/u), /^HTTP\/1\.1 200 OK\r\n/u);
  client.socket.destroy();
});

test('an answer whose note fails is withheld', async () => {
  await using fixture = await startWith(ok);
  fixture.guest.recorded = Promise.reject(new Error('no disk'));
  fixture.guest.recorded.catch(() => undefined);
  const answer = await fixture.ask('openai/models');
  assert.equal(answer.status, 503);
  assert.equal(JSON.parse(answer.body).error.code, 'unrecorded');
  assert.equal(answer.headers['retry-after'], '2');
});

test('a service without a grant is answered 404', async () => {
  await using fixture = await startWith(ok);
  const answer = await fixture.ask('anthropic/v1/messages');
  assert.equal(answer.status, 404);
  assert.equal(JSON.parse(answer.body).error.code, 'service');
  assert.deepEqual(fixture.network.dialled, []);
});

test('a request that an endpoint rule refuses is answered 403 and noted, and nothing is sent', async () => {
  await using fixture = await startWith(ok);
  const endpoints = [{ methods: ['POST' as const], paths: ['/v1/chat/completions'] }];
  fixture.guest.grant(grantOf('openai', { endpoints }));
  const answer = await fixture.ask('openai/files?secret=1');
  assert.equal(answer.status, 403);
  assert.equal(JSON.parse(answer.body).error.code, 'endpoint_rule');
  assert.deepEqual(fixture.guest.proxied, ['openai GET /v1/files 403']);
  assert.deepEqual(fixture.network.dialled, []);
});

test('a host that the network policy refuses is answered 403 and noted as blocked', async () => {
  await using fixture = await startWith(ok);
  fixture.guest.restrict({ deny: [OPENAI] });
  const answer = await fixture.ask('openai/models');
  assert.equal(answer.status, 403);
  assert.equal(JSON.parse(answer.body).error.code, 'network_policy');
  const [note] = fixture.guest.notes;
  assert.deepEqual(note?.data, { domain: OPENAI, port: 443, reason: 'denied_by_rule', count: 1 });
  fixture.guest.restrict({ default: 'deny', allow: ['*.openai.com'] });
  assert.equal((await fixture.ask('openai/models')).status, 200);
});

test('an address that the network policy refuses is also answered 403', async () => {
  await using fixture = await startWith(ok);
  fixture.network.address = '10.1.2.3';
  const answer = await fixture.ask('openai/models');
  assert.equal(JSON.parse(answer.body).error.code, 'network_policy');
  assert.deepEqual(fixture.guest.notes[0]?.data, {
    domain: OPENAI,
    ip: '10.1.2.3',
    port: 443,
    reason: 'private_address',
    count: 1,
  });
});

test('a host that no name rule allows is reached at an address that an address rule allows', async () => {
  await using fixture = await startWith(ok);
  fixture.guest.restrict({ default: 'deny', allow: ['203.0.113.0/24'] });
  assert.equal((await fixture.ask('openai/models')).status, 200);
  fixture.network.address = '198.51.100.7';
  fixture.guest.restrict({ default: 'deny', allow: ['203.0.113.0/24'] });
  assert.equal((await fixture.ask('openai/models')).status, 403);
  const blocked = fixture.guest.notes.filter(({ event }) => event === 'network.blocked');
  assert.deepEqual(
    blocked.map(({ data }) => data),
    [{ domain: OPENAI, ip: '198.51.100.7', port: 443, reason: 'not_allowed', count: 1 }],
  );
});

test('a grant without its secret is answered with a retry time', async () => {
  await using fixture = await startWith(ok);
  fixture.guest.grant(grantOf('openai', { secret: undefined }));
  const answer = await fixture.ask('openai/models');
  assert.equal(answer.status, 503);
  assert.equal(JSON.parse(answer.body).error.code, 'secret_missing');
  assert.equal(answer.headers['retry-after'], '2');
});

test('guests are distinguished by address, and an unknown guest gets no answer', async () => {
  await using fixture = await startWith(ok);
  assert.equal((await fixture.ask('openai/models', { localAddress: '127.0.0.2' })).status, 404);
  const client = await fixture.open('127.0.0.3');
  assert.equal(await client.closed(), '');
});

test('services whose certificate has another name or authority are refused', async () => {
  await using fixture = await startWith(ok);
  await using strange = await ProxyFixture.start();
  await fixture.network.serve('api.github.com', ok, { subjectAltName: 'DNS:evil.example' });
  await fixture.network.serve('api.anthropic.com', ok, { validToDays: -1, validFromDays: -3 });
  await strange.network.serve('router.huggingface.co', ok);
  const { network } = fixture;
  const portOf = network.portOf.bind(network);
  network.portOf = (name) => (name === 'router.huggingface.co' ? strange.network.portOf(name) : portOf(name));
  fixture.guest.grant(grantOf('github'), grantOf('anthropic'), grantOf('huggingface'));
  for (const name of ['github', 'anthropic', 'huggingface']) {
    const answer = await fixture.ask(`${name}/x`);
    assert.equal(answer.status, 502);
    assert.equal(JSON.parse(answer.body).error.code, 'upstream_untrusted', name);
  }
  assert.deepEqual(fixture.guest.proxied.at(-1), 'huggingface GET /x 502');
});

test('an unreachable service is answered 502', async () => {
  await using fixture = await startWith(ok);
  fixture.guest.grant(grantOf('anthropic'));
  const answer = await fixture.ask('anthropic/v1/messages');
  assert.equal(answer.status, 502);
  assert.equal(JSON.parse(answer.body).error.code, 'upstream_unreachable');
});

test('a redirect is forwarded and not followed', async () => {
  await using fixture = await startWith((_request, response) => {
    response.writeHead(302, { location: 'https://elsewhere.example/x' }).end();
  });
  const answer = await fixture.ask('openai/models');
  assert.equal(answer.status, 302);
  assert.equal(answer.headers.location, 'https://elsewhere.example/x');
  assert.deepEqual(fixture.network.dialled, [OPENAI]);
});

test('session, origin and hop-by-hop fields do not reach the guest', async () => {
  await using fixture = await startWith((_request, response) => {
    response.writeHead(200, [
      ['Set-Cookie', 'a=1'],
      ['Alt-Svc', 'h3=":443"'],
      ['Strict-Transport-Security', 'max-age=1'],
      ['Proxy-Authenticate', 'Basic'],
      ['X-Kept', '1'],
      ['X-Kept', '2'],
      ['Connection', 'close, x-hop'],
      ['X-Hop', '1'],
    ]);
    response.end('ok');
  });
  const { headers, rawHeaders } = await fixture.ask('openai/models');
  for (const name of ['set-cookie', 'alt-svc', 'strict-transport-security', 'proxy-authenticate', 'x-hop'])
    assert.equal(headers[name], undefined, name);
  assert.equal(rawHeaders.filter((name) => name === 'X-Kept').length, 2);
});

test('a secret that a service repeats in its head or trailers does not reach the guest', async () => {
  const token = Buffer.from(`x-access-token:${CANARY}`).toString('base64');
  const echo: RequestListener = (request, response) => {
    response.writeHead(200, `OK ${CANARY}`, {
      trailer: 'x-trailer',
      'x-plain': CANARY,
      'x-within': `key=${CANARY};`,
      'x-upper': CANARY.toUpperCase(),
      'x-sent': request.headers.authorization,
      'x-base64': Buffer.from(CANARY).toString('base64'),
      [`x-${CANARY}`]: '1',
      'x-kept': 'yes',
    });
    response.addTrailers({ 'x-trailer': CANARY, 'x-other': 'yes' });
    response.end('ok');
  };
  await using fixture = await startWith(echo);
  await fixture.network.serve('api.acme.example', echo);
  fixture.guest.grant(grantOf('openai'), grantOf('acme'));
  for (const service of ['openai', 'acme']) {
    const answer = await fixture.ask(`${service}/x`);
    const text = JSON.stringify([answer.rawHeaders, answer.trailers]).toLowerCase();
    for (const form of [CANARY, token, Buffer.from(CANARY).toString('base64')])
      assert.ok(!text.includes(form.toLowerCase()), form);
    assert.equal(answer.headers['x-kept'], 'yes');
    assert.equal(answer.trailers['x-other'], 'yes');
  }
});

test('answers without a body are forwarded without one', async () => {
  await using fixture = await startWith((request, response) => {
    if (request.method === 'HEAD') response.writeHead(200, { 'content-length': '1234' }).end();
    else response.writeHead(request.url?.includes('304') === true ? 304 : 204, { etag: '"a"' }).end();
  });
  const head = await fixture.ask('openai/models', { method: 'HEAD' });
  assert.equal(head.headers['content-length'], '1234');
  assert.equal((await fixture.ask('openai/204')).status, 204);
  const unchanged = await fixture.ask('openai/304');
  assert.equal(unchanged.status, 304);
  assert.equal(unchanged.headers['transfer-encoding'], undefined);
  assert.equal(unchanged.headers.etag, '"a"');
});

test('events reach the guest one by one while the service still sends', async () => {
  const streams: ServerResponse[] = [];
  await using fixture = await startWith((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('data: 1\n\n');
    streams.push(response);
  });
  const client = await fixture.open();
  client.write('POST /proxy/openai/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n');
  await client.until(/data: 1\n\n/u);
  assert.ok(!client.received.includes('data: 2'));
  streams[0]?.write('data: 2\n\n');
  await client.until(/data: 2\n\n/u);
  streams[0]?.end();
  await client.until(/\r\n0\r\n\r\n$/u);
  client.socket.destroy();
});

test('a guest that closes its connection ends the request at the service, and the request is noted', async () => {
  const arrived = Promise.withResolvers<void>();
  const closed = Promise.withResolvers<void>();
  await using fixture = await startWith((request) => {
    arrived.resolve();
    request.socket.once('close', closed.resolve);
  });
  const client = await fixture.open();
  client.write('POST /proxy/openai/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n');
  await arrived.promise;
  client.socket.destroy();
  await closed.promise;
  await waitFor('the note', () => fixture.guest.proxied.length === 1);
  assert.deepEqual(fixture.guest.proxied, ['openai POST /v1/responses 499']);
});

test('a service that breaks off its answer ends the connection of the guest', async () => {
  await using fixture = await startWith((_request, response) => {
    response.writeHead(200, { 'content-length': '100' });
    response.write('half');
    setImmediate(() => response.destroy());
  });
  const client = await fixture.open();
  client.write('GET /proxy/openai/models HTTP/1.1\r\nHost: x\r\n\r\n');
  assert.match(await client.closed(), /content-length: 100/iu);
});

test('a service that closes the connection before its answer, or sends invalid data, is answered 502', async () => {
  await using fixture = await startWith((request) => {
    if (request.url === '/v1/gone') request.socket.destroy();
    else request.socket.end(`nonsense ${request.headers.authorization}\r\n\r\n`);
  });
  for (const [path, code] of [
    ['gone', 'upstream_failed'],
    ['nonsense', 'upstream_malformed'],
  ] as const) {
    const answer = await fixture.ask(`openai/${path}`, { method: 'POST', body: 'x' });
    assert.equal(answer.status, 502);
    assert.equal(JSON.parse(answer.body).error.code, code);
    assert.ok(!answer.body.includes(CANARY));
  }
  assert.ok(fixture.log.length >= 2);
  assert.ok(!fixture.log.join('').includes(CANARY), 'the log contains the secret');
});

test('a guest that expects 100-continue gets it once the service is connected', async () => {
  await using fixture = await startWith((request, response) => {
    request.resume().once('end', () => response.end('taken'));
  });
  const head = 'HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n';
  const client = await fixture.open();
  client.write(`POST /proxy/openai/files ${head}`);
  await client.until(/^HTTP\/1\.1 100 Continue\r\n\r\n$/u);
  client.write('body');
  await client.until(/HTTP\/1\.1 200 OK[\s\S]*taken/u);
  client.socket.destroy();
  const refused = await fixture.open();
  refused.write(`POST /proxy/github/files ${head}`);
  assert.match(await refused.until(/\}\}$/u), /^HTTP\/1\.1 404 /u);
  refused.socket.destroy();
});

test('bodies without a length are sent in chunks', async () => {
  await using fixture = await startWith((request, response) => {
    request.pipe(response.writeHead(200, { 'x-framing': request.headers['transfer-encoding'] }));
  });
  const answer = await fixture.ask('openai/files', {
    method: 'POST',
    headers: { 'transfer-encoding': 'chunked' },
    body: 'in chunks',
  });
  assert.equal(answer.headers['x-framing'], 'chunked');
  assert.equal(answer.body, 'in chunks');
});

test('a connection to a service is kept for the same guest and service only', async () => {
  const ports = new Set<number | undefined>();
  await using fixture = await startWith((request, response) => {
    ports.add(request.socket.remotePort);
    response.end('ok');
  });
  for (let round = 0; round < 3; round += 1) await fixture.ask('openai/models');
  assert.equal(ports.size, 3, 'no connection is kept for a guest that has closed all of its own');
  const client = await fixture.open();
  for (let round = 1; round <= 3; round += 1) {
    client.write('GET /proxy/openai/models HTTP/1.1\r\nHost: x\r\n\r\n');
    await waitFor('an answer', () => client.received.split('HTTP/1.1 200').length === round + 1);
  }
  assert.equal(ports.size, 4);
  fixture.other.grant(grantOf('openai'));
  await fixture.ask('openai/models', { localAddress: '127.0.0.2' });
  assert.equal(ports.size, 5);
  fixture.guest.grant(grantOf('openai', { secret: 'sk-rotated-secret' }));
  client.write('GET /proxy/openai/models HTTP/1.1\r\nHost: x\r\n\r\n');
  await waitFor('an answer', () => client.received.split('HTTP/1.1 200').length === 5);
  assert.equal(ports.size, 6);
  client.socket.destroy();
});

test('a repeatable request survives a kept connection that the service has closed', async () => {
  let served = 0;
  await using fixture = await startWith((request, response) => {
    served += 1;
    if (served === 2) request.socket.destroy();
    else response.end('ok');
  });
  const client = await fixture.open();
  client.write('GET /proxy/openai/models HTTP/1.1\r\nHost: x\r\n\r\n');
  await client.until(/ok/u);
  client.write('GET /proxy/openai/models HTTP/1.1\r\nHost: x\r\n\r\n');
  await client.until(/ok[\s\S]*200 OK[\s\S]*ok/u);
  assert.equal(served, 3);
  client.socket.destroy();
});

test('no state of a guest is kept after its last connection', async () => {
  await using fixture = await startWith(ok);
  await fixture.ask('openai/models');
  await waitFor('the end of the session', () => fixture.guest.watches === 0);
});

test('each built-in service gets its own form of header', async () => {
  await using fixture = await startWith(ok);
  const seen: Record<string, IncomingMessage['headers']> = {};
  for (const name of ['anthropic', 'google', 'github', 'acme'])
    await fixture.network.serve(serviceOf(name).host, (request, response) => {
      seen[name] = request.headers;
      response.end();
    });
  fixture.guest.grant(...['anthropic', 'google', 'github', 'acme'].map((name) => grantOf(name)));
  for (const name of ['anthropic', 'google', 'github', 'acme']) await fixture.ask(`${name}/x`);
  assert.equal(seen['anthropic']?.['x-api-key'], CANARY);
  assert.equal(seen['google']?.['x-goog-api-key'], CANARY);
  assert.equal(seen['github']?.authorization, `Bearer ${CANARY}`);
  assert.match(seen['acme']?.authorization ?? '', /^Basic /u);
});
