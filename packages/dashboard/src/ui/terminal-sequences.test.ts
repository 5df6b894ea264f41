import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withoutSequences } from './terminal-sequences.ts';

test('sequences are removed, also titles, links and unfinished ones', () => {
  assert.equal(withoutSequences('\u001b[31;1mred\u001b[0m'), 'red');
  assert.equal(withoutSequences('\u001b]0;title\u0007text'), 'text');
  assert.equal(withoutSequences('\u001b]8;;https://evil.example\u001b\\link\u001b]8;;\u001b\\'), 'link');
  assert.equal(withoutSequences('\u001bPq#0\u001b\\after'), 'after');
  assert.equal(withoutSequences('a\u001b[2Kb\u001b(Bc\u001b7d'), 'abcd');
  assert.equal(withoutSequences('end\u001b['), 'end');
});

test('other text stays as it is', () => {
  assert.equal(withoutSequences('<b>&amp;</b>\ta[31m'), '<b>&amp;</b>\ta[31m');
});
