import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { escapeWord, expandWord, splitWords, WordError } from './dockerfile-words.ts';

const VALUES: Readonly<Record<string, string>> = { A: 'x', E: '', D: 'deep' };
const lookup = (name: string): string | undefined => (Object.hasOwn(VALUES, name) ? VALUES[name] : undefined);
const expand = (word: string, escape = '\\'): string => expandWord(word, { escape, lookup });

test('words expand as in BuildKit', () => {
  for (const [word, expected] of Object.entries({
    '$A/y': 'x/y',
    '${A}y': 'xy',
    '${B:-d}': 'd',
    '${E:-d}': 'd',
    '${E-d}': '',
    '${A:+alt}': 'alt',
    '${E+alt}': 'alt',
    '${E:+alt}': '',
    '${B:-$D}': 'deep',
    '${B:-${D}}': 'deep',
    '${B:-${C:-${D}/end}}y': 'deep/endy',
    '${B:-"}"}': '}',
    "${B:-'$A}'}": '$A}',
    '${B:-a\\}b}': 'a}b',
    '"${B:-a $D}"': 'a deep',
    '${A:-$D}': 'x',
    "'$A'": '$A',
    '"$A b"': 'x b',
    '\\$A': '$A',
    '\\${A}': '${A}',
    '"\\$A \\x"': '$A \\x',
    $B: '',
    $: '$',
    a$: 'a$',
    '$/': '$/',
    $1x: 'x',
    $$A: 'A',
    'end\\': 'end',
    '': '',
  }))
    assert.equal(expand(word), expected, word);
  assert.equal(expand('`$A\\b', '`'), '$A\\b');
});

test('forms that BuildKit refuses, or that are not supported here, are refused with a reason', () => {
  for (const [word, pattern] of [
    ['${A', /no closing brace/u],
    ['${', /no closing brace/u],
    ['${A:-x', /no closing brace/u],
    ['${A:-${B}', /no closing brace/u],
    ['${}', /followed by no name/u],
    ['${A:?x}', /\$\{A:\?…\} is not supported/u],
    ['${A?x}', /not supported/u],
    ['${A#x}', /\$\{A#…\} is not supported/u],
    ['${A%x}', /not supported/u],
    ['${A/x/y}', /not supported/u],
    ['${#A}', /not supported/u],
    ['${A b}', /not supported/u],
    ['"a', /double quote is not closed/u],
    ["it's", /single quote is not closed/u],
    [`${'${A:-'.repeat(20)}x${'}'.repeat(20)}`, /more than 16/u],
    ['x'.repeat(32_769), /more than 32768 bytes; shorten it/u],
    ['ä'.repeat(16_385), /more than 32768 bytes; shorten it/u],
  ] as const)
    assert.throws(
      () => expand(word),
      (error) => error instanceof WordError && pattern.test(error.message),
      word.slice(0, 50),
    );
  assert.throws(() => splitWords('a "b', '\\'), WordError);
});

test('words that a regular expression would search again and again are read once', () => {
  const begun = performance.now();
  for (const piece of ['${a-', '${a', '$', '"$', '${a:+x}', '\\'])
    for (let round = 0; round < 20; round += 1)
      try {
        expand(piece.repeat(32_000 / piece.length));
      } catch (error) {
        assert(error instanceof WordError, String(error));
      }
  splitWords('${a-'.repeat(65_536), '\\');
  assert.ok(performance.now() - begun < 5000);
});

test('an escaped name stays what it is, but for its variables', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 50 }), fc.constantFrom('\\', '`'), (text, escape) => {
      const name = text.replaceAll('$', '');
      assert.equal(expand(escapeWord(name, escape), escape), name);
    }),
    { seed: 5, numRuns: 2000 },
  );
  assert.equal(expand(escapeWord(String.raw`it's "$A" \$A`, '\\')), `it's "x" $A`);
});
