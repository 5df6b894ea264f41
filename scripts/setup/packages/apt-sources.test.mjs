import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { findSuite, formatDeb822, parseDeb822, parseOneLine, readAptSources } from './apt-sources.mjs';

const DEB822 = `# the main archive
Types: deb deb-src
URIs: http://mirror.invalid/debian
# a comment inside a stanza
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/archive.gpg

Enabled: no
Types: deb
URIs: http://other.invalid/debian
Suites: bookworm
Components: main
`;

test('a deb822 stanza gives its suites, components and key; a disabled stanza gives nothing', () => {
  assert.deepEqual(parseDeb822(DEB822), [
    {
      uri: 'http://mirror.invalid/debian',
      suites: ['bookworm', 'bookworm-updates'],
      components: ['main', 'contrib'],
      signedBy: '/usr/share/keyrings/archive.gpg',
      trusted: false,
    },
  ]);
});

test('a key embedded in a stanza is copied unchanged into a new stanza', () => {
  const key = ' -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF\n -----END PGP PUBLIC KEY BLOCK-----';
  const [source] = parseDeb822(
    `Types: deb\nURIs: http://m.invalid/d\nSuites: trixie\nComponents: main\nSigned-By:\n${key}\n`,
  );
  assert.ok(source);
  const [again] = parseDeb822(formatDeb822(source, { suites: ['trixie-backports'] }));
  assert.equal(again?.signedBy, source.signedBy);
  assert.match(again?.signedBy ?? '', /mQINBF/);
});

test('one-line sources are read with and without options; comments and source packages are skipped', () => {
  const text = `
# deb http://commented.invalid/debian bookworm main
deb-src http://mirror.invalid/debian bookworm main
deb http://mirror.invalid/debian bookworm main non-free # trailing words
deb [arch=amd64 signed-by=/etc/apt/keyrings/own.gpg] https://mirror.invalid/security bookworm-security main
`;
  assert.deepEqual(
    parseOneLine(text).map(({ uri, suites, components, signedBy }) => [
      uri,
      suites[0],
      components.join(' '),
      signedBy,
    ]),
    [
      ['http://mirror.invalid/debian', 'bookworm', 'main non-free', undefined],
      ['https://mirror.invalid/security', 'bookworm-security', 'main', '/etc/apt/keyrings/own.gpg'],
    ],
  );
});

test('the archive of a suite must have the component main', () => {
  const sources = parseOneLine(
    'deb http://tools.invalid/apt bookworm stable\ndeb http://mirror.invalid/debian bookworm main',
  );
  assert.equal(findSuite(sources, 'bookworm')?.uri, 'http://mirror.invalid/debian');
  assert.equal(findSuite(sources, 'bookworm-backports'), undefined);
});

test('backports are derived from the archive, with its key', () => {
  const source = findSuite(parseDeb822(DEB822), 'bookworm');
  assert.ok(source);
  assert.equal(
    formatDeb822(source, { suites: ['bookworm-backports'], components: ['main'] }),
    'Types: deb\nURIs: http://mirror.invalid/debian\nSuites: bookworm-backports\nComponents: main\nSigned-By: /usr/share/keyrings/archive.gpg\n',
  );
});

test('both formats are read from their directories; files that apt ignores are skipped', (t) => {
  const root = mkdtempSync(join(tmpdir(), 'apt-sources-'));
  t.after(() => rmSync(root, { recursive: true }));
  mkdirSync(join(root, 'sources.list.d'));
  writeFileSync(join(root, 'sources.list'), 'deb http://one.invalid/debian bookworm main\n');
  writeFileSync(join(root, 'sources.list.d', 'two.sources'), DEB822);
  writeFileSync(
    join(root, 'sources.list.d', 'three.list.save'),
    'deb http://three.invalid/debian bookworm main\n',
  );
  assert.deepEqual(
    readAptSources(root).map(({ uri }) => uri),
    ['http://one.invalid/debian', 'http://mirror.invalid/debian'],
  );
});
