import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findBadText } from './find-bad-text.ts';

const placeOf = (parsed: unknown) => findBadText(parsed)?.issues.map(({ path, message }) => [path, message]);

test('a NUL is found anywhere, with its path', () => {
  const fault = 'must not contain a NUL character';
  assert.deepEqual(placeOf('a\0'), [[[], fault]]);
  assert.deepEqual(placeOf({ id: '\0' }), [[['id'], fault]]);
  assert.deepEqual(placeOf({ network: { allow: ['ok', 'a\0'] } }), [[['network', 'allow', 1], fault]]);
});

test('half of a surrogate pair is found, a whole pair is valid', () => {
  assert.deepEqual(placeOf({ labels: { a: '\ud83d' } }), [[['labels', 'a'], 'must be valid Unicode']]);
  assert.equal(findBadText({ labels: { a: '\ud83d\ude00' } }), undefined);
});

test('for an invalid field name, the error shows only the path', () => {
  assert.deepEqual(placeOf({ env: { 'secret\0': 'x' } }), [[['env'], 'has a name that is not valid text']]);
});

test('standard input may have a NUL, other fields of the same name may not', () => {
  assert.equal(findBadText({ command: 'cat', stdin: 'a\0b' }), undefined);
  assert.deepEqual(placeOf({ env: { stdin: 'a\0b' } })?.[0]?.[0], ['env', 'stdin']);
  assert.deepEqual(placeOf({ stdin: '\ud800' }), [[['stdin'], 'must be valid Unicode']]);
});

test('values that are not text, and valid text, are accepted', () => {
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
