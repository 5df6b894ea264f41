import assert from 'node:assert/strict';
import { test } from 'node:test';
import { explain } from './explain.ts';

test('hidden characters of a text that an error quotes are shown', () => {
  assert.equal(
    explain(new Error('image "\u202egnp.exe": no\nsecond line')),
    'image "\\u202Egnp.exe": no\nsecond line',
  );
  assert.equal(explain('\u200b'), '\\u200B');
});

test('the detail of the service precedes what the client adds to it', () => {
  const error = Object.assign(new Error('400: detail'), { detail: 'de\u0007tail' });
  assert.equal(explain(error), 'de\\x07tail');
});

test('a service that does not answer is not described by its code', () => {
  const error = Object.assign(new Error('ECONNREFUSED'), { code: 'connection_refused' });
  assert.equal(explain(error), 'The service cannot be reached. Check your connection and try again.');
});
