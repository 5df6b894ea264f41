import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { AppError, type ErrorCode } from '../errors.ts';
import { formatImageReference, isBuiltinImage, parseImageReference } from './image-reference.ts';

const HEX = 'a'.repeat(64);
const DIGEST = `sha256:${HEX}`;

function codeOf(text: string): ErrorCode {
  try {
    parseImageReference(text);
  } catch (error) {
    assert(error instanceof AppError, String(error));
    return error.code;
  }
  throw new assert.AssertionError({ message: `${text} was accepted` });
}

test('short names mean the official images of Docker Hub', () => {
  assert.deepEqual(parseImageReference('node:22-slim'), {
    registry: 'docker.io',
    repository: 'library/node',
    tag: '22-slim',
  });
  for (const [text, canonical] of [
    ['node:22-slim', 'docker.io/library/node:22-slim'],
    ['docker.io/node:22', 'docker.io/library/node:22'],
    ['index.docker.io/library/node:22', 'docker.io/library/node:22'],
    ['bitnami/redis:7.2', 'docker.io/bitnami/redis:7.2'],
    ['ghcr.io/owner/app/part:v1', 'ghcr.io/owner/app/part:v1'],
    ['localhost/app:1', 'localhost/app:1'],
    ['localhost:5000/app:1', 'localhost:5000/app:1'],
    ['127.0.0.1:5000/a/b:1', '127.0.0.1:5000/a/b:1'],
    ['[::1]:5000/app:1', '[::1]:5000/app:1'],
    ['Registry.Example.org/app:1', 'registry.example.org/app:1'],
    [`node@${DIGEST}`, `docker.io/library/node@${DIGEST}`],
    [`node:latest@${DIGEST}`, `docker.io/library/node:latest@${DIGEST}`],
    ['coppice/base:1', 'coppice/base:1'],
    ['docker.io/coppice/base:1', 'docker.io/coppice/base:1'],
    ['coppice:1', 'docker.io/library/coppice:1'],
    ['a__b/c.d--e_f:_x', 'docker.io/a__b/c.d--e_f:_x'],
  ] as const) {
    assert.equal(formatImageReference(parseImageReference(text)), canonical, text);
  }
});

test('coppice/* is built in and never a name of Docker Hub', () => {
  assert.equal(isBuiltinImage(parseImageReference('coppice/base:1')), true);
  assert.equal(isBuiltinImage(parseImageReference('docker.io/coppice/base:1')), false);
  assert.equal(isBuiltinImage(parseImageReference('coppice.example/base:1')), false);
});

test('local/* is imported on this machine and never a name of Docker Hub', () => {
  assert.equal(formatImageReference(parseImageReference('local/team/app:1')), 'local/team/app:1');
  assert.equal(isBuiltinImage(parseImageReference('local/app:1')), true);
  for (const text of ['docker.io/local/app:1', 'local:1', 'localhost/app:1', 'local.example/app:1']) {
    assert.equal(isBuiltinImage(parseImageReference(text)), false, text);
  }
  assert.equal(codeOf('local/app:latest'), 'image_not_pinned');
});

test('a missing tag and floating tags (in any letter case) are refused, unless a digest pins the image', () => {
  for (const text of ['node', 'ghcr.io/a/b', 'localhost:5000/app', 'coppice/base']) {
    assert.equal(codeOf(text), 'image_not_pinned', text);
  }
  for (const tag of ['latest', 'lts', 'stable', 'LATEST', 'Lts', 'sTable']) {
    assert.equal(codeOf(`node:${tag}`), 'image_not_pinned', tag);
    parseImageReference(`node:${tag}@${DIGEST}`);
  }
  parseImageReference('node:22-lts');
  parseImageReference('node:stable-slim');
});

test('text that is not a reference is refused with a reason', () => {
  for (const text of [
    '',
    ' node:22',
    'node:22 ',
    'node:',
    'node:22@',
    'node:22@sha256:abc',
    `node@sha512:${HEX}${HEX}`,
    `node@sha256:${HEX.toUpperCase()}`,
    `node@${DIGEST}@${DIGEST}`,
    'Node:22',
    'a/B:1',
    'B/a:1',
    'Coppice/base:1',
    '/node:22',
    'node/:22',
    'a//b:1',
    'a/../b:1',
    '../b:1',
    '-a:1',
    'a-:1',
    'node:.22',
    'node:a:b',
    'node:22\n',
    'node:22\0',
    'nøde:22',
    'docker://node:22',
    'https://ghcr.io/a/b:1',
    'localhost:0/app:1',
    'localhost:70000/app:1',
    'host:port/app:1',
    'exa_mple.org:5000/app:1',
    `node:${'x'.repeat(129)}`,
    `${'a'.repeat(300)}:1`,
    'x'.repeat(513),
  ]) {
    assert.equal(codeOf(text), 'invalid_image', JSON.stringify(text));
  }
});

test('the reason is within the first 200 bytes of the message', () => {
  assert.throws(
    () => parseImageReference(`${'x/'.repeat(120)}Y:1`),
    (error: Error) => /lower case/u.test(error.message.slice(0, 200)),
  );
});

const component = fc.stringMatching(/^[a-z0-9]{1,8}([._-][a-z0-9]{1,8}){0,2}$/u);
const registry = fc.constantFrom(
  'docker.io',
  'ghcr.io',
  'localhost',
  '127.0.0.1:5000',
  'r.example.org:443',
  '[::1]:80',
);
const tag = fc.stringMatching(/^\w[\w.-]{0,20}$/u).filter((text) => !/^(?:latest|lts|stable)$/iu.test(text));
const digest = fc.stringMatching(/^sha256:[0-9a-f]{64}$/u);

test('a formatted reference parses back to itself', () => {
  const references = fc
    .tuple(registry, fc.array(component, { minLength: 2, maxLength: 4 }), fc.option(tag), fc.option(digest))
    .filter(([, , tagText, digestText]) => tagText !== null || digestText !== null);
  fc.assert(
    fc.property(references, ([host, path, tagText, digestText]) => {
      const reference = {
        registry: host,
        repository: path.join('/'),
        ...(tagText === null ? {} : { tag: tagText }),
        ...(digestText === null ? {} : { digest: digestText }),
      };
      assert.deepEqual(parseImageReference(formatImageReference(reference)), reference);
    }),
  );
});

test('any text parses to a stable reference or fails with a code of the error table', () => {
  const nearlyReferences = fc
    .array(
      fc.constantFrom(
        'a',
        'B',
        '/',
        ':',
        '@',
        '.',
        '-',
        '_',
        '5000',
        'coppice',
        'local',
        'sha256:',
        HEX,
        '[',
        ']',
        '\0',
        ' ',
      ),
      {
        maxLength: 12,
      },
    )
    .map((parts) => parts.join(''));
  fc.assert(
    fc.property(fc.oneof(fc.string(), nearlyReferences), (text) => {
      let reference;
      try {
        reference = parseImageReference(text);
      } catch (error) {
        assert(error instanceof AppError, String(error));
        assert(error.code === 'invalid_image' || error.code === 'image_not_pinned');
        return;
      }
      assert.deepEqual(parseImageReference(formatImageReference(reference)), reference);
    }),
    { numRuns: 2000 },
  );
});
