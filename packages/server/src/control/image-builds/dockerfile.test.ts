import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import fc from 'fast-check';
import { parseDockerfile } from './dockerfile.ts';
import { splitWords } from './dockerfile-words.ts';

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

test('a line whose last escape is escaped itself does not continue', () => {
  const steps = [
    { line: 2, run: 'echo C:\\\\' },
    { line: 3, run: 'a   b' },
  ];
  assert.deepEqual(stepsOf('RUN echo C:\\\\', 'RUN a \\ \t', '  b'), steps);
  assert.deepEqual(
    parseDockerfile('# escape=`\nFROM a:1\nRUN a``\nRUN b `\n`\nc').steps.map(({ run }) => run),
    ['a``', 'b c'],
  );
});

test('words are split at spaces outside of quotes', () => {
  assert.deepEqual(splitWords(`a "b c" d\\ e 'f g'`, '\\'), ['a', '"b c"', 'd\\ e', "'f g'"]);
});

const stepsOf = (...lines: string[]) => parseDockerfile(['FROM a:1', ...lines].join('\n')).steps;

test('a here-document is the script of its RUN, or input of a command of it, as in BuildKit', () => {
  assert.deepEqual(stepsOf('RUN <<-EOF', '\techo a', '\tEOF'), [{ line: 2, run: 'echo a' }]);
  assert.deepEqual(stepsOf('RUN <<EOF', '#!/usr/bin/env python3', 'print(1)', 'EOF'), [
    { line: 2, run: '#!/usr/bin/env python3\nprint(1)', isScript: true },
  ]);
  assert.deepEqual(stepsOf("RUN cat <<'EOF' >/etc/f && \\", '  true', 'a $B', 'EOF', 'USER app'), [
    { line: 2, run: "cat <<'EOF' >/etc/f &&   true\na $B\nEOF" },
    { line: 6, user: 'app' },
  ]);
  assert.deepEqual(stepsOf('RUN cat <<A 3<<-B', 'a', 'A', '\tb', '\tB'), [
    { line: 2, run: 'cat <<A 3<<-B\na\nA\n\tb\nB' },
  ]);
  for (const run of ['echo $((1<<N))', 'echo "a <<EOF"', 'cat <<<x', "echo '<<EOF'"])
    assert.deepEqual(stepsOf(`RUN ${run}`), [{ line: 2, run }]);
  assert.deepEqual(stepsOf('ENV A=<<EOF'), [{ line: 2, env: { A: '<<EOF' } }]);
});

test('the arguments that BuildKit sets have the values of this platform', () => {
  const text = 'FROM --platform=$BUILDPLATFORM a:$TARGETARCH\nARG TARGETARCH\nARG TARGETOS=other';
  const { from, steps } = parseDockerfile(text);
  assert.equal(from, 'a:amd64');
  assert.deepEqual(
    steps.map(({ arg }) => arg),
    [
      { name: 'TARGETARCH', value: 'amd64', raw: undefined },
      { name: 'TARGETOS', value: undefined, raw: 'other' },
    ],
  );
});

test('names of the JSON form keep their quotes and escapes', () => {
  assert.deepEqual(stepsOf(JSON.stringify(['a "b"', "it's\\", '/x/']).replace(/^/u, 'COPY ')), [
    { line: 2, copy: { from_path: 'a \\"b\\"', to: '/x/' } },
    { line: 2, copy: { from_path: "it\\'s\\\\", to: '/x/' } },
  ]);
});

test('what a step may have is what it may have in a request, too', () => {
  for (const [text, pattern] of [
    [`RUN ${'x'.repeat(65_537)}`, /line 2: RUN: .* at most 65536 bytes/u],
    ['RUN ["a", "b\\u0000"]', /line 2: RUN/u],
    [`COPY ${'x'.repeat(4096)} /a`, /line 2: the source: must be at most 4095 bytes/u],
    ['COPY a*b*c*d*e*f*g*h*i* /a', /line 2: the source: must have at most 8 \*/u],
    ['COPY --chmod=u+x a /a', /line 2: --chmod: must be three or four octal digits/u],
    [`WORKDIR /${'x'.repeat(4096)}`, /line 2: WORKDIR: must be at most 4095 bytes/u],
    [
      `ENV ${Array.from({ length: 65 }, (_, index) => `A${index}=`).join(' ')}`,
      /line 2: ENV: .* 64 variables/u,
    ],
    [Array.from({ length: 129 }, () => 'RUN true').join('\n'), /line 130: more than 128 steps/u],
    [`ARG ${'a '.repeat(100_000)}`, /line 2: more than 128 steps/u],
    ['ENV __proto__=x', /line 2: __proto__ is not the name/u],
    ['COPY --__proto__=x a /a', /line 2: --__proto__ is not supported/u],
    ['ENV A=${B', /line 2: .*no closing brace/u],
    ['ENV A="b', /line 2: a quote is not closed/u],
    ['WORKDIR ${A:?x}', /line 2: .*not supported/u],
    ['RUN cat<<EOF\nx\nEOF', /line 2: cat<<EOF: write a here-document with spaces around it/u],
    ['RUN cat <<EOF>f\nx\nEOF', /line 2: <<EOF>f: write a here-document with spaces around it/u],
    ['RUN A="$(cat <<EOF\nx\nEOF\n)"', /line 2: a quote is not closed/u],
    ['COPY <<EOF /a\nx\nEOF', /line 2: a here-document is supported in RUN only/u],
    ['ADD ["https://x.test/a", "/a"]', /line 2: .*download it with RUN/u],
  ] as const)
    refused(`FROM a:1\n${text}`, pattern);
  refused(
    `ARG A=${'x'.repeat(1000)}\n${'ARG A=$A$A\n'.repeat(30)}FROM a:1`,
    /line 7: a word has more than 32768/u,
  );
  refused(
    `ARG A=${'x'.repeat(30_000)}\n${Array.from({ length: 20 }, (_, index) => `ARG A${index}=$A\n`).join('')}FROM a:1`,
    /line 9: the arguments before FROM/u,
  );
});

test('text that is made to be slow is parsed or refused at once', () => {
  const size = 256 << 10;
  const begun = performance.now();
  for (const piece of ['${a-', '$', '${a:-', 'b=', '\\ ', '"a" ', '<<A ', '--a '])
    for (const keyword of ['ARG A=', 'FROM ', 'FROM a:1\nENV A=', 'FROM a:1\nRUN ', 'FROM a:1\nCOPY '])
      try {
        parseDockerfile(`${keyword}${piece.repeat((size - 64) / piece.length)}`);
      } catch (error) {
        assert(error instanceof AppError, String(error));
      }
  assert.ok(performance.now() - begun < 10_000, `${performance.now() - begun} ms`);
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

test('arguments that no ARG declares are noted by name, and proxies need no ARG', () => {
  const given = { USED: '1', BEFORE: '2', OTHER: 'secret', MORE: '', HTTP_PROXY: 'http://p', no_proxy: 'a' };
  const { notes, proxies } = parseDockerfile('ARG BEFORE\nFROM a:1\nARG USED', given);
  assert.deepEqual(notes, ['build_args: no ARG declares OTHER, MORE, so they have no effect']);
  assert.deepEqual(proxies, { HTTP_PROXY: 'http://p', no_proxy: 'a' });
  assert.deepEqual(parseDockerfile('FROM a:1\nARG A', { A: 'x' }).notes, []);
  assert.throws(
    () => parseDockerfile('FROM a:1', { ALL_PROXY: 'x'.repeat(40_000) }),
    /build_args: the values of ALL_PROXY have more than 32768 bytes/u,
  );
});
