import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { test } from 'node:test';
import fc from 'fast-check';
import { CANARY, grantOf, ProxyFixture, waitFor } from './testing/proxy-fixture.ts';
import type { ProxyLimits } from './request/proxy-limits.ts';

const OPENAI = 'api.openai.com';
const HEAD = 'Host: x\r\n';

interface Seen {
  line: string;
  headers: string[];
  body: string;
}

/** Starts a service that records the requests it receives. */
async function startWitness(
  limits: Partial<ProxyLimits> = {},
): Promise<{ fixture: ProxyFixture; seen: Seen[] }> {
  const fixture = await ProxyFixture.start(limits);
  const seen: Seen[] = [];
  await fixture.network.serve(OPENAI, (request: IncomingMessage, response) => {
    let body = '';
    request.setEncoding('latin1');
    request.on('data', (chunk: string) => (body += chunk));
    request.on('end', () => {
      seen.push({ line: `${request.method} ${request.url}`, headers: request.rawHeaders, body });
      response.end('ok');
    });
  });
  fixture.guest.grant(grantOf('openai'));
  return { fixture, seen };
}

const REFUSED: [what: string, request: string, answer: RegExp][] = [
  [
    'two lengths',
    `POST /proxy/openai/x HTTP/1.1\r\n${HEAD}Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody!`,
    /^HTTP\/1\.1 400 /u,
  ],
  [
    'a length and chunks',
    `POST /proxy/openai/x HTTP/1.1\r\n${HEAD}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    /^HTTP\/1\.1 400 /u,
  ],
  [
    'chunks that are not the last encoding',
    `POST /proxy/openai/x HTTP/1.1\r\n${HEAD}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n`,
    /^HTTP\/1\.1 400 /u,
  ],
  [
    'an encoding that hides behind another',
    `POST /proxy/openai/x HTTP/1.1\r\n${HEAD}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`,
    /^HTTP\/1\.1 400 /u,
  ],
  [
    'a length with a sign',
    `POST /proxy/openai/x HTTP/1.1\r\n${HEAD}Content-Length: +4\r\n\r\nbody`,
    /^HTTP\/1\.1 400 /u,
  ],
  [
    'a blank before the colon',
    `POST /proxy/openai/x HTTP/1.1\r\n${HEAD}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n`,
    /^HTTP\/1\.1 400 /u,
  ],
  ['a folded header', `GET /proxy/openai/x HTTP/1.1\r\n${HEAD}X-A: 1\r\n b\r\n\r\n`, /^HTTP\/1\.1 400 /u],
  ['lines that end in a line feed alone', `GET /proxy/openai/x HTTP/1.1\nHost: x\n\n`, /^HTTP\/1\.1 400 /u],
  ['a header without a name', `GET /proxy/openai/x HTTP/1.1\r\n${HEAD}: 1\r\n\r\n`, /^HTTP\/1\.1 400 /u],
  ['no host', 'GET /proxy/openai/x HTTP/1.1\r\n\r\n', /^HTTP\/1\.1 400 /u],
  [
    'the absolute form',
    `GET https://${OPENAI}/proxy/openai/x HTTP/1.1\r\n${HEAD}\r\n`,
    /^HTTP\/1\.1 400 [\s\S]*"target"/u,
  ],
  ['the asterisk form', `OPTIONS * HTTP/1.1\r\n${HEAD}\r\n`, /^HTTP\/1\.1 400 [\s\S]*"target"/u],
  ['TRACE', `TRACE /proxy/openai/x HTTP/1.1\r\n${HEAD}\r\n`, /^HTTP\/1\.1 405 /u],
  ['dot segments', `GET /proxy/openai/../x HTTP/1.1\r\n${HEAD}\r\n`, /^HTTP\/1\.1 400 /u],
  ['a path of the proxy itself', `GET / HTTP/1.1\r\n${HEAD}\r\n`, /^HTTP\/1\.1 400 /u],
  ['the metadata of a cloud', `GET /latest/meta-data/ HTTP/1.1\r\n${HEAD}\r\n`, /^HTTP\/1\.1 400 /u],
  ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', /^HTTP\/1\.1 400 |^$/u],
  ['TLS', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', /^HTTP\/1\.1 400 /u],
  [
    'a head that is too large',
    `GET /proxy/openai/x HTTP/1.1\r\n${HEAD}X-A: ${'a'.repeat(70_000)}\r\n\r\n`,
    /^HTTP\/1\.1 431 /u,
  ],
  [
    'too many headers',
    `GET /proxy/openai/x HTTP/1.1\r\n${HEAD}${'a: b\r\n'.repeat(3_000)}\r\n`,
    /^HTTP\/1\.1 431 /u,
  ],
  [
    'another method in a header',
    `POST /proxy/openai/x HTTP/1.1\r\n${HEAD}X-HTTP-Method-Override: DELETE\r\nContent-Length: 0\r\n\r\n`,
    /^HTTP\/1\.1 403 /u,
  ],
  [
    'an unknown expectation',
    `POST /proxy/openai/x HTTP/1.1\r\n${HEAD}Expect: 200-ok\r\nContent-Length: 0\r\n\r\n`,
    /^HTTP\/1\.1 417 /u,
  ],
];

test('malformed and hostile requests are refused, and no part of them is sent', async (t) => {
  const { fixture, seen } = await startWitness();
  await using _ = fixture;
  for (const [what, request, expected] of REFUSED)
    await t.test(what, async () => {
      const client = await fixture.open();
      client.write(request);
      await waitFor(`an answer to ${what}`, () => client.isClosed || /\r\n\r\n/u.test(client.received));
      assert.match(client.received, expected);
      assert.ok(!client.received.includes(CANARY));
      client.socket.destroy();
    });
  assert.deepEqual(seen, []);
  assert.deepEqual(fixture.network.dialled, []);
  assert.equal((await fixture.ask('openai/models')).status, 200);
});

test('a guest cannot make the proxy connect it to a host', async () => {
  const { fixture } = await startWitness();
  await using _ = fixture;
  const client = await fixture.open();
  client.write(`CONNECT ${OPENAI}:443 HTTP/1.1\r\n${HEAD}\r\n`);
  assert.doesNotMatch(await client.closed(), / 200 /u);
  assert.deepEqual(fixture.network.dialled, []);
});

test('an offer of HTTP/2 without TLS is ignored', async () => {
  const { fixture, seen } = await startWitness();
  await using _ = fixture;
  const client = await fixture.open();
  client.write(
    `GET /proxy/openai/models HTTP/1.1\r\n${HEAD}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n`,
  );
  assert.match(await client.until(/ok/u), /^HTTP\/1\.1 200 /u);
  assert.ok(!seen[0]?.headers.some((name) => /upgrade|http2/iu.test(name)));
  client.socket.destroy();
});

test('requests sent before the answer to the first one are not accepted', async () => {
  const { fixture, seen } = await startWitness();
  await using _ = fixture;
  const client = await fixture.open();
  client.write(`GET /proxy/openai/models HTTP/1.1\r\n${HEAD}\r\n`.repeat(2_000));
  assert.equal(await client.closed(), '');
  await waitFor('the note', () => fixture.guest.proxied.length === 1);
  assert.ok(seen.length <= 1);
  assert.ok(fixture.network.dialled.length <= 1);
});

test('data after a body with a length is the next request and is judged separately', async () => {
  const { fixture, seen } = await startWitness();
  await using _ = fixture;
  fixture.guest.grant(grantOf('openai', { endpoints: [{ methods: ['POST'], paths: ['/v1/chat'] }] }));
  const client = await fixture.open();
  const inner = `DELETE /v1/files HTTP/1.1\r\n${HEAD}\r\n`;
  client.write(`POST /proxy/openai/chat HTTP/1.1\r\n${HEAD}Content-Length: ${inner.length}\r\n\r\n${inner}`);
  await client.until(/ok/u);
  assert.deepEqual(
    seen.map(({ line }) => line),
    ['POST /v1/chat'],
  );
  assert.equal(seen[0]?.body, inner);
  client.write(`DELETE /proxy/openai/files HTTP/1.1\r\n${HEAD}\r\n`);
  await client.until(/403 Forbidden/u);
  assert.equal(seen.length, 1);
  client.socket.destroy();
});

test('an incomplete head is answered after its time limit', async () => {
  const { fixture } = await startWitness({ headTimeoutMs: 200 });
  await using _ = fixture;
  const slow = await fixture.open();
  slow.write('GET /proxy/openai/models HTTP/1.1\r\nHost:');
  const silent = await fixture.open();
  assert.match(await slow.closed(), /^HTTP\/1\.1 408 /u);
  await silent.closed();
});

test('a stalled body is answered after its time limit', async () => {
  const { fixture } = await startWitness({ bodyIdleMs: 200 });
  await using _ = fixture;
  const client = await fixture.open();
  client.write(`POST /proxy/openai/files HTTP/1.1\r\n${HEAD}Content-Length: 100\r\n\r\nhalf`);
  assert.match(await client.until(/\}\}/u), /^HTTP\/1\.1 408 [\s\S]*body_timeout/u);
  assert.deepEqual(fixture.guest.proxied, ['openai POST /v1/files 408']);
  client.socket.destroy();
});

test('a service that does not answer is answered 504', async () => {
  await using fixture = await ProxyFixture.start({ answerIdleMs: 200 });
  await fixture.network.serve(OPENAI, () => undefined);
  fixture.guest.grant(grantOf('openai'));
  const answer = await fixture.ask('openai/models');
  assert.equal(answer.status, 504);
  assert.equal(JSON.parse(answer.body).error.code, 'upstream_timeout');
  assert.deepEqual(fixture.guest.proxied, ['openai GET /v1/models 504']);
});

test('a guest has a limited number of connections, and other guests have their own limit', async () => {
  const { fixture } = await startWitness({ maxConnectionsPerGuest: 2 });
  await using _ = fixture;
  const held = [await fixture.open(), await fixture.open()];
  const more = await fixture.open();
  assert.match(await more.closed(), /^HTTP\/1\.1 503 [\s\S]*too_many_connections/u);
  assert.equal((await fixture.ask('openai/models', { localAddress: '127.0.0.2' })).status, 404);
  held[0]?.socket.destroy();
  await waitFor('room', () => held[0]?.isClosed === true);
  assert.equal((await fixture.ask('openai/models')).status, 200);
  held[1]?.socket.destroy();
});

const token = fc.stringMatching(/^[A-Za-z0-9_-]{1,12}$/u);
const part = fc.oneof(token, fc.constantFrom('%41', '..', '%2e', '%2F', 'a;b', '', '\\', 'chat', 'é'));
const headerName = fc.oneof(
  token,
  fc.constantFrom(
    'Authorization',
    'Host',
    'Connection',
    'X-Api-Key',
    'Cookie',
    'Upgrade',
    'TE',
    'Via',
    'Expect',
  ),
);
const headerValue = fc.oneof(
  token,
  fc.constantFrom('close', 'x-a, upgrade', 'websocket', '100-continue', 'a b'),
);

test('a service gets exactly the judged and noted request for any input of the guest', async () => {
  const { fixture, seen } = await startWitness();
  await using _ = fixture;
  fixture.guest.grant(grantOf('openai', { endpoints: [{ methods: ['POST'], paths: ['/v1/chat/*'] }] }));
  let sent = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom('GET', 'POST', 'POST', 'POST'),
      fc.array(part, { maxLength: 4 }),
      fc.array(fc.tuple(headerName, headerValue), { maxLength: 4 }),
      fc.string({ maxLength: 20 }),
      async (method, parts, headers, body) => {
        seen.length = 0;
        fixture.guest.notes.length = 0;
        const bytes = Buffer.from(body);
        const client = await fixture.open();
        const lines = [
          `${method} /proxy/openai/chat/${parts.join('/')}?q=1 HTTP/1.1`,
          'Host: x',
          `Content-Length: ${bytes.length}`,
          ...headers.map(([name, value]) => `${name}: ${value}`),
        ];
        client.write(`${lines.join('\r\n')}\r\n\r\n${bytes.toString('latin1')}`);
        const isOver = (): boolean =>
          client.isClosed || /HTTP\/1\.1 [2345]\d\d[\s\S]*\r\n\r\n/u.test(client.received);
        await waitFor('an answer', isOver);
        client.socket.destroy();
        assert.ok(!client.received.includes(CANARY));
        if (!/HTTP\/1\.1 200/u.test(client.received)) {
          assert.deepEqual(seen, []);
          return;
        }
        sent += 1;
        assert.equal(seen.length, 1);
        const [{ line, headers: got, body: gotBody } = { line: '', headers: [], body: '' }] = seen;
        const path = line.replace(/^POST /u, '').replace(/\?q=1$/u, '');
        assert.match(path, /^\/v1\/chat\/(?!.*(?:^|\/)\.\.(?:\/|$))/u);
        assert.deepEqual(fixture.guest.proxied, [`openai POST ${path} 200`]);
        assert.equal(gotBody, bytes.toString('latin1'));
        const names = got.filter((_name, index) => index % 2 === 0).map((name) => name.toLowerCase());
        for (const name of ['host', 'authorization', 'content-length'])
          assert.equal(names.filter((one) => one === name).length, 1, name);
        assert.equal(
          got[got.findIndex((name) => name.toLowerCase() === 'authorization') + 1],
          `Bearer ${CANARY}`,
        );
        for (const name of ['x-api-key', 'cookie', 'upgrade', 'te', 'via', 'expect'])
          assert.ok(!names.includes(name), name);
      },
    ),
    { numRuns: 300 },
  );
  assert.ok(sent > 30, `only ${sent} were sent`);
});
