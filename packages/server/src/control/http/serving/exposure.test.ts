import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { request } from 'node:https';
import { text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { connect, type PeerCertificate } from 'node:tls';
import { connectPinned } from '../../../lib/tls/pinned-socket.ts';
import { TestAuthority } from '../../../lib/tls/testing/certificate.ts';
import { readTlsPair, type TlsPair } from '../../../lib/tls/tls-pair.ts';
import { startControl } from '../../control.ts';
import {
  API_KEY,
  prepareHarness,
  startHarness,
  waitFor,
  type ControlHarness,
} from '../../testing/control-harness.ts';

const DEADLINE_MS = 10_000;

const authority = new TestAuthority();
const ca = readFileSync(authority.certPath);
let harness: ControlHarness;
let first: TlsPair;
let second: TlsPair;

before(async () => {
  first = readTlsPair(authority.issue('first'));
  second = readTlsPair(authority.issue('second'));
  harness = await prepareHarness();
  await harness.runner.start();
  const config = { ...harness.config, hstsSeconds: 3600, trustedProxies: ['127.0.0.0/8'] };
  harness.control = await startControl(config, harness.log, { tls: first });
});
after(async () => {
  await harness[Symbol.asyncDispose]();
  authority[Symbol.dispose]();
});

function address(): URL {
  return new URL(harness.control?.address ?? '');
}

interface TlsAnswer {
  status: number | undefined;
  headers: Record<string, string | string[] | undefined>;
  body: string;
  certificate: PeerCertificate;
}

function get(path: string, headers: Record<string, string> = {}): Promise<TlsAnswer> {
  const { promise, resolve, reject } = Promise.withResolvers<TlsAnswer>();
  const options = { ca, headers, agent: false as const, timeout: DEADLINE_MS };
  request(new URL(path, address()), options, (response) => {
    const certificate = (response.socket as ReturnType<typeof connect>).getPeerCertificate();
    text(response).then(
      (body) => resolve({ status: response.statusCode, headers: response.headers, body, certificate }),
      reject,
    );
  })
    .on('error', reject)
    .end();
  return promise;
}

test('under TLS the address is https, and a client that trusts the authority is served', async () => {
  assert.equal(address().protocol, 'https:');
  const answer = await get('/v1/runs', { authorization: `Bearer ${API_KEY}` });
  assert.deepEqual([answer.status, answer.body, answer.certificate.subject.CN], [200, '[]', 'first']);
});

test('every answer tells browsers to stay with TLS, including errors', async () => {
  for (const path of ['/healthz', '/v1/runs', '/nothing'])
    assert.equal((await get(path)).headers['strict-transport-security'], 'max-age=3600', path);
});

test('TLS older than 1.2 and plain HTTP are refused', async () => {
  const { hostname: host, port } = address();
  const attempt = (maxVersion: 'TLSv1.1' | 'TLSv1.2') => {
    const { promise, resolve, reject } = Promise.withResolvers<string | null>();
    // Without this level, OpenSSL would already refuse on the client's side.
    const ciphers = 'DEFAULT@SECLEVEL=0';
    const socket = connect({ host, port: Number(port), ca, minVersion: 'TLSv1', maxVersion, ciphers }, () => {
      resolve(socket.getProtocol());
      socket.destroy();
    }).on('error', reject);
    return promise;
  };
  assert.equal(await attempt('TLSv1.2'), 'TLSv1.2');
  await assert.rejects(attempt('TLSv1.1'), /alert protocol version|EPROTO/iu);
  await assert.rejects(fetch(`http://${address().host}/healthz`));
});

test('a new pair is for new connections, and the service recognizes itself by the pair in use', async () => {
  const open = await connectPinned(address(), first, DEADLINE_MS);
  harness.control?.setTls(second);
  try {
    assert.equal((await get('/healthz')).certificate.subject.CN, 'second');
    await assert.rejects(connectPinned(address(), first, DEADLINE_MS), /another certificate/u);
    (await connectPinned(address(), second, DEADLINE_MS)).destroy();
    open.write('GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
    assert.match(await text(open), /^HTTP\/1\.1 200 OK/u);
  } finally {
    open.destroy();
    harness.control?.setTls(first);
  }
});

/** Waits for the log line, which the service writes after the answer: the client may receive the answer first. */
async function logLineOf({ logLines }: ControlHarness, requestId: string): Promise<string> {
  const find = (): string | undefined =>
    logLines.find((line) => line.includes(`"request_id":"${requestId}"`));
  await waitFor(`the log line of ${requestId}`, () => find() !== undefined);
  return find() ?? '';
}

test('the log has the client address that a trusted proxy reports', async () => {
  const id = 'through-a-proxy';
  await get('/healthz', { 'x-request-id': id, 'x-forwarded-for': '10.6.6.6, 198.51.100.9' });
  assert.match(await logLineOf(harness, id), /"client_address":"198\.51\.100\.9"/u);
});

test('plain HTTP sends no HSTS, and ignores X-Forwarded-For without trusted proxies', async () => {
  await using plain = await startHarness();
  const headers = { 'x-request-id': 'direct', 'x-forwarded-for': '198.51.100.9' };
  const answer = await plain.call('GET', '/healthz', { headers });
  assert.equal(answer.headers.get('strict-transport-security'), null);
  assert.match(await logLineOf(plain, 'direct'), /"client_address":"127\.0\.0\.1"/u);
});
