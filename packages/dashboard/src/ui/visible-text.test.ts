import assert from 'node:assert/strict';
import { test } from 'node:test';
import { showHidden, showHiddenInLines, splitHidden } from './visible-text.ts';

test('a text without hidden characters is one piece, and an empty one has none', () => {
  assert.deepEqual(splitHidden('Übung 1 – 木.txt'), [{ text: 'Übung 1 – 木.txt', isEscape: false }]);
  assert.deepEqual(splitHidden(''), []);
});

test('characters that change how a name looks are escaped, apart from the same letters in the name', () => {
  assert.deepEqual(splitHidden('photo\u202Egpj.exe\\u202E'), [
    { text: 'photo', isEscape: false },
    { text: '\\u202E', isEscape: true },
    { text: 'gpj.exe\\u202E', isEscape: false },
  ]);
  assert.equal(
    showHidden('a\nb\r\t\0\u001b[1m\u009b\u200b\u2028'),
    'a\\nb\\r\\t\\0\\x1B[1m\\x9B\\u200B\\u2028',
  );
  assert.equal(showHidden('tag\u{E0041}'), 'tag\\u{E0041}');
  assert.equal(showHidden('half \uD83D'), 'half \\uD83D');
});

test('markup stays text', () => {
  assert.equal(showHidden('<img src=x onerror=alert(1)>'), '<img src=x onerror=alert(1)>');
});

test('lines and tabs of a text stay, and terminal sequences are shown', () => {
  assert.equal(showHiddenInLines('a\r\n\tb\n\u001b[31mred\rover'), 'a\n\tb\n\\x1B[31mred\\rover');
});
