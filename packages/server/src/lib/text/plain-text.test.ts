import assert from 'node:assert/strict';
import { test } from 'node:test';
import { plainText } from './plain-text.ts';

test('control characters and lone surrogates are replaced, line feeds and tabs stay', () => {
  assert.equal(
    plainText('a\0b\u001b[2Jc\u009bd\r\n\te', 100),
    'a\u{FFFD}b\u{FFFD}[2Jc\u{FFFD}d\u{FFFD}\n\te',
  );
  assert.equal(plainText('x\ud800y\udc00', 100), 'x\u{FFFD}y\u{FFFD}');
  assert.equal(plainText('grüße 😀', 100), 'grüße 😀');
});

test('a text is cut, and never between the two halves of a character', () => {
  assert.equal(plainText('x'.repeat(501), 500), 'x'.repeat(500));
  assert.equal(plainText('xx😀', 3), 'xx\u{FFFD}');
});
