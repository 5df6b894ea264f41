import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import fc from 'fast-check';
import { parseDockerfile } from './dockerfile.ts';
import { expandWord, splitWords } from './dockerfile-words.ts';

function refused(text: string, pattern: RegExp): void {
  assert.throws(
    () => parseDockerfile(text),
    (error) => {
      assert(error instanceof AppError, String(error));
      assert.equal(error.code, 'invalid_request');
      assert.match(error.message, pattern);
      return true;
    },
    text,
  );
}

const WHOLE = [
  '# syntax=docker/dockerfile:1',
  'ARG VERSION=22',
  'FROM --platform=linux/amd64 node:${VERSION}-slim AS app',
  '# a comment',
  'RUN apt-get update && \\',
  '    # between the parts',
  '    apt-get install -y curl',
  'run ["npm", "ci"]',
  'COPY --chown=app:app --chmod=750 package*.json ./',
  'COPY a b /srv/',
  'ENV A=1 B="two words" C=$A',
  'ENV OLD the rest',
  'ARG TOKEN=x',
  'WORKDIR /srv/$A',
  'USER app',
  'RUN <<EOF',
  'set -e',
  'echo "$HOME"',
  'EOF',
  'CMD ["node"]',
  'EXPOSE 80',
].join('\n');

test('instructions become steps with their lines; comments and continuations are as in Docker', () => {
  const { from, steps, notes } = parseDockerfile(WHOLE);
  assert.equal(from, 'node:22-slim');
  assert.deepEqual(steps, [
    { line: 5, run: 'apt-get update &&     apt-get install -y curl' },
    { line: 8, run: ['npm', 'ci'] },
    { line: 9, copy: { from_path: 'package*.json', to: './', owner: 'app:app', mode: '750' } },
    { line: 10, copy: { from_path: 'a', to: '/srv/' } },
    { line: 10, copy: { from_path: 'b', to: '/srv/' } },
    { line: 11, env: { A: '1', B: '"two words"', C: '$A' } },
    { line: 12, env: { OLD: 'the rest' } },
    { line: 13, arg: { name: 'TOKEN', value: undefined, raw: 'x' } },
    { line: 14, workdir: '/srv/$A' },
    { line: 15, user: 'app' },
    { line: 16, run: 'set -e\necho "$HOME"' },
  ]);
  assert.equal(notes.length, 2);
  assert.match(notes[0] ?? '', /^line 20: CMD has no effect/u);
  assert.equal(parseDockerfile(WHOLE, { VERSION: '24' }).from, 'node:24-slim');
});

test('what a build cannot do is refused with the line and a remedy', () => {
  for (const [text, pattern] of [
    ['RUN true', /line 1: RUN comes before FROM/u],
    ['', /there is no FROM/u],
    ['FROM scratch', /line 1: scratch/u],
    ['FROM a:1\nFROM b:1', /line 2: a second FROM.*image of its own/u],
    ['FROM a:1\nCOPY --from=x /a /b', /line 2: --from/u],
    ['FROM a:1\nRUN --mount=type=cache,target=/x true', /line 2: --mount.*remove it/u],
    ['FROM a:1\nADD https://x.test/a /a', /line 2: .*download it with RUN/u],
    ['FROM a:1\nADD a.tar.gz /a', /line 2: .*RUN tar/u],
    ['FROM a:1\nSHELL ["/bin/bash"]', /line 2: SHELL is not supported/u],
    ['FROM a:1\nONBUILD RUN x', /line 2: ONBUILD/u],
    ['FROM a:1\nCOPY a', /line 2: write COPY/u],
    ['FROM a:1\nCOPY a b c', /line 2: .*slash/u],
    ['FROM a:1\nRUN <<EOF\nx', /here-document has no end/u],
    ['FROM a:1\n\n!!', /line 3: it does not begin/u],
    ['FROM --platform=linux/arm64 a:1', /linux\/amd64/u],
  ] as const)
    refused(text, pattern);
});

test('quotes, escapes and variables of words are as in Docker', () => {
  const lookup = (name: string): string | undefined => ({ A: 'x', E: '' })[name];
  const expand = (word: string): string => expandWord(word, { escape: '\\', lookup });
  assert.deepEqual(splitWords(`a "b c" d\\ e 'f g'`, '\\'), ['a', '"b c"', 'd\\ e', "'f g'"]);
  for (const [word, expected] of Object.entries({
    '$A/y': 'x/y',
    '${A}y': 'xy',
    '${B:-d}': 'd',
    '${E:-d}': 'd',
    '${E-d}': '',
    '${A:+alt}': 'alt',
    "'$A'": '$A',
    '"$A b"': 'x b',
    '\\$A': '$A',
    $B: '',
  }))
    assert.equal(expand(word), expected, word);
});

test('any text is parsed or refused with a line', () => {
  fc.assert(
    fc.property(fc.string({ maxLength: 200, unit: 'binary' }), (text) => {
      try {
        parseDockerfile(`FROM a:1\n${text}`);
      } catch (error) {
        assert(error instanceof AppError && /line \d+/u.test(error.message), String(error));
      }
    }),
    { seed: 7, numRuns: 2000 },
  );
});
