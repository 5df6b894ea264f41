import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isolate } from './isolate.ts';

test('a name that cannot turn the text stays as it is', () => {
  for (const name of ['ci', 'Größe 大', '<b>', '']) assert.equal(isolate(name), name);
});

test('a name with another direction is isolated, and cannot end that', () => {
  assert.equal(isolate('עדה'), '\u2068עדה\u2069');
  assert.equal(isolate('a\u202Egnp.exe'), '\u2068a\u202Egnp.exe\u2069');
  assert.equal(isolate('a\u2069\u202Eb'), '\u2068a\u202Eb\u2069');
});
