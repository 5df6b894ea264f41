import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findBadText } from './find-bad-text.ts';

const placeOf = (parsed: unknown) => findBadText(parsed)?.issues.map(({ path, message }) => [path, message]);

test('a NUL is found wherever it is, with its place', () => {
  const fault = 'must not contain a NUL character';
  assert.deepEqual(placeOf('a\0'), [[[], fault]]);
  assert.deepEqual(placeOf({ id: '\0' }), [[['id'], fault]]);
  assert.deepEqual(placeOf({ network: { allow: ['ok', 'a\0'] } }), [[['network', 'allow', 1], fault]]);
});

test('half of a surrogate pair is found, a whole one is text', () => {
  assert.deepEqual(placeOf({ labels: { a: '\ud83d' } }), [[['labels', 'a'], 'must be valid Unicode']]);
  assert.equal(findBadText({ labels: { a: '\ud83d\ude00' } }), undefined);
});

test('of a name that is no text only the place is told', () => {
  assert.deepEqual(placeOf({ env: { 'secret\0': 'x' } }), [[['env'], 'has a name that is no valid text']]);
});

test('standard input may have a NUL, and nothing else of its name', () => {
  assert.equal(findBadText({ command: 'cat', stdin: 'a\0b' }), undefined);
  assert.deepEqual(placeOf({ env: { stdin: 'a\0b' } })?.[0]?.[0], ['env', 'stdin']);
  assert.deepEqual(placeOf({ stdin: '\ud800' }), [[['stdin'], 'must be valid Unicode']]);
});

test('what is no text, and texts that are, are let through', () => {
  for (const parsed of [
    undefined,
    null,
    1,
    true,
    'caf\u00e9',
    [],
    {},
    { a: [1, null, { b: '\u{1f600}\n' }] },
  ])
    assert.equal(findBadText(parsed), undefined);
});
