import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { normalizePath, placeUnderBase, type NormalizedPath } from './normalize-path.ts';

function normalize(raw: string): NormalizedPath {
  const result = normalizePath(raw);
  assert.ok(result.ok, `refused ${raw}`);
  return result.value;
}

const NORMALIZED: [raw: string, text: string][] = [
  ['', '/'],
  ['/', '/'],
  ['//', '/'],
  ['/v1//chat///completions', '/v1/chat/completions'],
  ['/v1/chat/', '/v1/chat/'],
  ['/%76%31/chat', '/v1/chat'],
  ['/V1/Chat', '/V1/Chat'],
  ['/a%20b/%e2%82%ac', '/a%20b/%E2%82%AC'],
  ['/v1beta/models/gemini-2.5-pro:generateContent', '/v1beta/models/gemini-2.5-pro:generateContent'],
  ['/v1beta/models/gemini%3AgenerateContent', '/v1beta/models/gemini:generateContent'],
  ['/repos/o/r/branches/fix%2Fit', '/repos/o/r/branches/fix%2Fit'],
  ['/a;x=1/b', '/a%3Bx=1/b'],
  ['/what%3Fever%23', '/what%3Fever%23'],
  ['/100%25', '/100%25'],
  ['/.../.hidden/a..b', '/.../.hidden/a..b'],
];

for (const [raw, text] of NORMALIZED) {
  test(`${JSON.stringify(raw)} is sent as ${text}`, () => {
    assert.equal(normalize(raw).text, text);
  });
}

const REFUSED = [
  'v1/chat',
  '/a/../b',
  '/a/./b',
  '/..',
  '/a/%2e%2e/b',
  '/a/.%2E/b',
  '/a/%2e/b',
  '/a/..%2fb',
  '/a%2f..%2fb',
  '/a/%252e%252e/b',
  '/a%252fb',
  '/a%255cb',
  '/a/%25%32%65%25%32%65/b',
  '/a/%2525252e%2525252e/b',
  '/a\\b',
  '/a%5Cb',
  '/a/..;/b',
  '/a/..%3Bx/b',
  '/a/;/b',
  '/a/%20..%20/b',
  '/a%00b',
  '/a%0d%0ab',
  '/a%7f',
  '/a%C2%80',
  '/a%',
  '/a%2',
  '/a%zz',
  '/a%ff',
  '/a%C0%AF',
  '/a%ED%A0%80',
  '/a b',
  '/a#b',
  '/a?b',
  '/é',
  '/a%EF%BC%8Fb',
  '/a/%EF%BC%8E%EF%BC%8E/b',
  '/a/%E2%80%A5/b',
  '/a%EF%BC%BCb',
  `/%${'25'.repeat(12)}2e`,
];

for (const raw of REFUSED) {
  test(`${JSON.stringify(raw)} is refused`, () => {
    const result = normalizePath(raw);
    assert.equal(result.ok ? result.value.text : result.refusal.reason, 'path');
  });
}

test('length and depth are bounded', () => {
  for (const raw of [`/${'a'.repeat(9000)}`, '/a'.repeat(200)]) {
    const result = normalizePath(raw);
    assert.equal(result.ok ? '' : result.refusal.reason, 'path-too-long');
  }
});

test('the base path is added only where it is missing', () => {
  const under = (raw: string, base: string): string => placeUnderBase(normalize(raw), base).text;
  assert.equal(under('/chat/completions', '/v1'), '/v1/chat/completions');
  assert.equal(under('/v1/chat/completions', '/v1'), '/v1/chat/completions');
  assert.equal(under('/%761//chat', '/v1'), '/v1/chat');
  assert.equal(under('/v1', '/v1'), '/v1');
  assert.equal(under('/v10/x', '/v1'), '/v1/v10/x');
  assert.equal(under('/v1%2Fx', '/v1'), '/v1/v1%2Fx');
  assert.equal(under('', '/v1'), '/v1/');
  assert.equal(under('/x', ''), '/x');
  assert.equal(under('/api/v3/x', '/api/v3'), '/api/v3/x');
  assert.equal(under('/api/x', '/api/v3'), '/api/v3/api/x');
});

const hostilePiece = fc.constantFrom(
  '/',
  '.',
  '..',
  '%2e',
  '%2E',
  '%2f',
  '%5c',
  '\\',
  '%25',
  '%00',
  '%',
  ';',
  'a',
  'B',
  '%61',
  '%c3%a9',
  '*',
  ' ',
);
const hostilePath = fc
  .array(
    fc.oneof({ weight: 8, arbitrary: hostilePiece }, { weight: 1, arbitrary: fc.string({ maxLength: 3 }) }),
    {
      maxLength: 12,
    },
  )
  .map((pieces) => `/${pieces.join('')}`);

/** Returns how the most lenient server could read a path: it decodes until nothing changes, then resolves. */
function resolveObligingly(path: string): string[] {
  let text = path;
  for (;;) {
    const next = text.replaceAll(/%([0-9a-f]{2})/giu, (_, hex: string) =>
      String.fromCodePoint(Number.parseInt(hex, 16)),
    );
    if (next === text) break;
    text = next;
  }
  const resolved: string[] = [];
  for (const segment of text.replaceAll('\\', '/').split('/')) {
    const bare = segment.split(';')[0]?.trim();
    if (bare === '..') resolved.pop();
    else if (bare !== '.' && segment !== '') resolved.push(segment);
  }
  return resolved;
}

test('an accepted path is sent in one spelling, which every server reads the same way', () => {
  let accepted = 0;
  fc.assert(
    fc.property(hostilePath, (raw) => {
      const result = normalizePath(raw);
      if (!result.ok) return;
      accepted++;
      const { text, segments, hasEncodedSlash } = result.value;
      assert.match(text, /^\/[!$&'()*+,\-./0-9:=@A-Z_a-z~%]*$/u);
      assert.deepEqual(normalize(text), result.value);
      assert.equal(new URL(text, 'http://h').pathname, text);
      assert.equal(hasEncodedSlash, /%2f/iu.test(text));
      if (hasEncodedSlash) return;
      const ascii = segments.filter((segment) => segment !== '');
      if (ascii.every((segment) => /^[\x20-\x7e]*$/u.test(segment)))
        assert.equal(resolveObligingly(text).length, ascii.length);
    }),
    { numRuns: 20_000 },
  );
  assert.ok(accepted > 1000, `only ${accepted} were accepted`);
});

test('the normalization never throws', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (text) => {
      for (const raw of [text, `/${text}`, encodeURI(`/${text.toWellFormed()}`)]) normalizePath(raw);
    }),
    { numRuns: 5000 },
  );
});

test('a path designed to be slow is judged at once', () => {
  const startedAt = performance.now();
  for (const piece of ['%25', '%2525', ';', '%C3%A9', '*a', '%EF%B7%BA'])
    normalizePath(`/${piece.repeat(Math.floor(8000 / piece.length))}`);
  assert.ok(performance.now() - startedAt < 500);
});
