import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { inspect } from 'node:util';
import pino from 'pino';
import { TestAuthority, type MadeCertificate } from './testing/certificate.ts';
import { readTlsPair, TlsError } from './tls-pair.ts';
import { TlsSource } from './tls-source.ts';

const authority = new TestAuthority();
after(() => authority[Symbol.dispose]());
const good = authority.issue('good');
const other = authority.issue('other');

function write(name: string, content: string): string {
  writeFileSync(authority.path(name), content);
  return authority.path(name);
}

function read(path: string): string {
  return readFileSync(path, 'utf8');
}

test('a pair is read with the chain after the certificate, and its key is not shown', () => {
  const certPath = write('chain.pem', read(good.certPath) + read(authority.certPath));
  const pair = readTlsPair({ certPath, keyPath: good.keyPath });
  assert.equal(pair.cert, read(certPath));
  assert.equal(pair.key.reveal(), read(good.keyPath));
  assert.ok(!inspect(pair, { depth: null }).includes('PRIVATE KEY'));
});

test('a pair that clients could not use is refused; the error names setting, file and remedy', () => {
  const encryptedPath = authority.path('encrypted.key');
  execFileSync(
    'openssl',
    ['pkey', '-in', good.keyPath, '-aes256', '-passout', 'pass:x', '-out', encryptedPath],
    {
      timeout: 20_000,
      stdio: 'pipe',
    },
  );
  const weak = { certPath: authority.path('weak.pem'), keyPath: authority.path('weak.key') };
  execFileSync(
    'openssl',
    ['req', '-x509', '-newkey', 'rsa:1024', '-nodes', '-subj', '/CN=weak', '-days', '5'].concat([
      '-keyout',
      weak.keyPath,
      '-out',
      weak.certPath,
    ]),
    { timeout: 20_000, stdio: 'pipe' },
  );
  const refused: [change: Partial<MadeCertificate>, message: RegExp][] = [
    [{ certPath: '/nonexistent/a.pem' }, /^COPPICE_TLS_CERT: \/nonexistent\/a\.pem does not exist$/],
    [{ keyPath: '/nonexistent/a.key' }, /^COPPICE_TLS_KEY: \/nonexistent\/a\.key does not exist$/],
    [{ certPath: authority.directory }, /^COPPICE_TLS_CERT: .* is a directory/],
    [
      { certPath: write('empty.pem', '') },
      /^COPPICE_TLS_CERT: .*empty\.pem holds no certificate in PEM form$/,
    ],
    [{ certPath: good.keyPath }, /^COPPICE_TLS_CERT: .* holds no certificate/],
    [
      { certPath: write('broken.pem', read(good.certPath).replace(/MII.{8}/u, 'MIIAAAAAAAA')) },
      /^COPPICE_TLS_CERT: certificate 1 in .* is broken/,
    ],
    [{ certPath: write('large.pem', 'x'.repeat((1 << 20) + 1)) }, /over 1 MiB/],
    [{ keyPath: good.certPath }, /^COPPICE_TLS_KEY: .* holds no private key/],
    [{ keyPath: encryptedPath }, /^COPPICE_TLS_KEY: .* is encrypted; write it without a passphrase/],
    [
      { keyPath: other.keyPath },
      /^COPPICE_TLS_KEY: .*other\.key is not the key of the certificate in .*good\.pem$/,
    ],
    [
      { certPath: write('turned.pem', read(authority.certPath) + read(good.certPath)) },
      /own certificate is number 2 in .*put it first/,
    ],
    [
      authority.issue('expired', { validFromDays: -9, validToDays: -1 }),
      /^COPPICE_TLS_CERT: .*expired\.pem expired on \d{4}-.*renew it$/,
    ],
    [
      authority.issue('future', { validFromDays: 2 }),
      /^COPPICE_TLS_CERT: .*future\.pem is not valid before \d{4}-.* clock says/,
    ],
    [weak, /^COPPICE_TLS_CERT: .*weak\.pem cannot be served: .*too small/],
  ];
  for (const [change, message] of refused) {
    assert.throws(
      () => readTlsPair({ ...good, ...change }),
      (error) =>
        error instanceof TlsError && message.test(error.message) && !error.message.includes('PRIVATE'),
      String(message),
    );
  }
});

test('reload takes a valid pair, and keeps the previous pair instead of an invalid one', () => {
  const paths = {
    certPath: write('live.pem', read(good.certPath)),
    keyPath: write('live.key', read(good.keyPath)),
  };
  const lines: string[] = [];
  const source = new TlsSource(paths, pino({}, { write: (line) => lines.push(line) }));
  write('live.pem', read(other.certPath));
  assert.equal(source.reload(), false);
  assert.equal(source.pair.cert, read(good.certPath));
  assert.match(lines.at(-1) ?? '', /is not the key of the certificate .*the previous one stays/);
  write('live.key', read(other.keyPath));
  assert.equal(source.reload(), true);
  assert.equal(source.pair.cert, read(other.certPath));
  assert.ok(!lines.join('').includes('PRIVATE KEY'));
});
