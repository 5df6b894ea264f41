import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { buildCurlTarget, type CurlTarget } from './curl-hint.ts';
import { TestAuthority } from './lib/tls/testing/certificate.ts';

const authority = new TestAuthority();
after(() => authority[Symbol.dispose]());
const ADDRESS = 'https://127.0.0.1:8080';

function targetOf(subjectAltName: string, certPath = '/etc/tls/cert.pem'): CurlTarget {
  const issued = authority.issue('named', { subjectAltName });
  const certificate = new X509Certificate(readFileSync(issued.certPath));
  return buildCurlTarget(ADDRESS, { certificate, certPath });
}

test('plain HTTP needs no options', () => {
  assert.deepEqual(buildCurlTarget('http://127.0.0.1:8080', undefined), {
    options: '',
    address: 'http://127.0.0.1:8080',
  });
});

test('under TLS curl trusts the certificate and calls the service by a name in it', () => {
  const trust = '--cacert /etc/tls/cert.pem ';
  const cases: [names: string, options: string, address: string][] = [
    ['IP:127.0.0.1', trust, ADDRESS],
    ['DNS:a.example', `${trust}--resolve a.example:8080:127.0.0.1 `, 'https://a.example:8080'],
    ['DNS:*.example', `${trust}--resolve coppice.example:8080:127.0.0.1 `, 'https://coppice.example:8080'],
    ['IP:192.0.2.1', trust, 'https://192.0.2.1:8080'],
    ['email:a@a.example', '--insecure ', ADDRESS],
  ];
  for (const [names, options, address] of cases)
    assert.deepEqual(targetOf(names), { options, address }, names);
});

test('a path is quoted as one shell argument', () => {
  assert.equal(targetOf('IP:127.0.0.1', "/a b/it's").options, `--cacert '/a b/it'\\''s' `);
});
