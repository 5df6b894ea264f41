import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cleanText } from './clean-text.ts';

test('escape sequences are removed, also titles, links and unfinished ones', () => {
  assert.equal(cleanText('\u001b[31;1mred\u001b[0m'), 'red');
  assert.equal(cleanText('\u001b]0;title\u0007text'), 'text');
  assert.equal(cleanText('\u001b]8;;https://evil.example\u001b\\link\u001b]8;;\u001b\\'), 'link');
  assert.equal(cleanText('\u001bPq#0\u001b\\after'), 'after');
  assert.equal(cleanText('a\u001b[2Kb\u001b(Bc\u001b7d'), 'abcd');
  assert.equal(cleanText('end\u001b['), 'end');
});

test('other control characters are visible, and text cannot change its direction', () => {
  assert.equal(cleanText('a\u0000b\tc'), 'a\u2400b\tc');
  assert.equal(cleanText('x\u202egnp.exe'), 'x\u{fffd}gnp.exe');
  assert.equal(cleanText('<b>&amp;</b>'), '<b>&amp;</b>');
});
