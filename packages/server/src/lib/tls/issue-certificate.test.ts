import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { buildControlUri, findControlId, fingerprintOf } from './control-role.ts';
import { oid, time } from './der.ts';
import { issueCertificate, makeKeyPair } from './issue-certificate.ts';

const directory = mkdtempSync(join(tmpdir(), 'cop-issue-'));
after(() => rmSync(directory, { recursive: true }));

const CONTROL = `ctl${'0a'.repeat(10)}`;
const FROM = new Date('2026-01-01T00:00:00.000Z');
const TO = new Date('2051-12-31T23:59:59.000Z');
const authority = makeKeyPair();
const leaf = makeKeyPair();
const issuer = { commonName: 'Coppice authority', key: authority.privateKey };
const validity = { validFrom: FROM, validTo: TO };
const ca = issueCertificate(
  { commonName: issuer.commonName, publicKey: authority.publicKey, ...validity, isAuthority: true },
  issuer,
);
const issued = issueCertificate(
  { commonName: 'é', publicKey: leaf.publicKey, ...validity, uri: buildControlUri(CONTROL) },
  issuer,
);

function openssl(...args: string[]): string {
  return execFileSync('openssl', args, { cwd: directory, encoding: 'utf8', stdio: 'pipe', timeout: 20_000 });
}

test('OpenSSL verifies an issued certificate for both ends of a connection, and reads what it says', () => {
  writeFileSync(join(directory, 'ca.pem'), ca);
  writeFileSync(join(directory, 'leaf.pem'), issued);
  for (const purpose of ['sslserver', 'sslclient'])
    assert.match(
      openssl('verify', '-x509_strict', '-purpose', purpose, '-CAfile', 'ca.pem', 'leaf.pem'),
      /leaf\.pem: OK/u,
    );
  const text = openssl('x509', '-in', 'leaf.pem', '-noout', '-text');
  for (const part of [
    /Version: 3/u,
    /Not Before: Jan {2}1 00:00:00 2026 GMT/u,
    /Not After : Dec 31 23:59:59 2051 GMT/u,
    /CA:FALSE/u,
    /Digital Signature/u,
    /TLS Web Server Authentication, TLS Web Client Authentication/u,
    /URI:coppice:\/\/control\/ctl0a/u,
  ])
    assert.match(text, part);
});

test('an issued certificate cannot issue another one', () => {
  const stolen = { commonName: 'é', key: leaf.privateKey };
  const forged = issueCertificate(
    { commonName: 'f', publicKey: makeKeyPair().publicKey, ...validity, uri: buildControlUri(CONTROL) },
    stolen,
  );
  writeFileSync(join(directory, 'chain.pem'), issued);
  writeFileSync(join(directory, 'forged.pem'), forged);
  assert.throws(
    () => openssl('verify', '-CAfile', 'ca.pem', '-untrusted', 'chain.pem', 'forged.pem'),
    /invalid CA|error/iu,
  );
});

test('a thousand certificates are well-formed and have different serial numbers', () => {
  const serials = new Set<string>();
  for (let index = 0; index < 1000; index += 1) {
    const made = issueCertificate({ commonName: 'x', publicKey: leaf.publicKey, ...validity }, issuer);
    const parsed = new X509Certificate(made);
    assert.ok(parsed.verify(authority.publicKey));
    serials.add(parsed.serialNumber);
  }
  assert.equal(serials.size, 1000);
});

test('only the URI of a control names a control', () => {
  const idOf = (uri: string): string | undefined =>
    findControlId(
      new X509Certificate(
        issueCertificate({ commonName: 'x', publicKey: leaf.publicKey, ...validity, uri }, issuer),
      ),
    );
  assert.equal(idOf(buildControlUri(CONTROL)), CONTROL);
  for (const uri of [
    `coppice://runner/${CONTROL}`,
    `coppice://control/${CONTROL}x`,
    `coppice://control/`,
    `https://coppice://control/${CONTROL}`,
    `coppice://control/${CONTROL}, URI:coppice://control/${CONTROL}`,
    `x, URI:coppice://control/${CONTROL}`,
  ])
    assert.equal(idOf(uri), undefined, uri);
  const without = issueCertificate({ commonName: CONTROL, publicKey: leaf.publicKey, ...validity }, issuer);
  assert.equal(findControlId(new X509Certificate(without)), undefined);
});

test('a fingerprint is that of the certificate in its binary form', () => {
  const parsed = new X509Certificate(issued);
  const shown = parsed.fingerprint256.replaceAll(':', '').toLowerCase();
  assert.equal(fingerprintOf(parsed), shown);
  assert.equal(fingerprintOf(issued), shown);
});

test('identifiers and times have the encodings of X.690', () => {
  assert.equal(oid('1.2.840.10045.4.3.2').toString('hex'), '06082a8648ce3d040302');
  assert.equal(time(FROM).toString('latin1'), '\u0017\u000d260101000000Z');
  assert.equal(time(TO).toString('latin1'), '\u0018\u000f20511231235959Z');
});
