import assert from 'node:assert/strict';
import { test } from 'node:test';
import { STATUS_REASONS } from '../../../../contract/src/sandbox/lifecycle.ts';
import { describeReason } from './end-reason.ts';
import { parseLabelFilter } from './label-filter.ts';
import { mergeNewest } from './merge-newest.ts';

const entries = (...ids: string[]): { id: string }[] => ids.map((id) => ({ id }));

test('new entries come on top, once', () => {
  assert.deepEqual(mergeNewest(entries('b', 'a'), entries('c', 'b')), entries('c', 'b', 'a'));
  assert.deepEqual(mergeNewest([], entries('a')), entries('a'));
});

test('a list that may lack entries in between is not continued', () => {
  assert.equal(mergeNewest(entries('a'), entries('d', 'c')), undefined);
});

test('labels are read as pairs, and anything else is refused', () => {
  assert.deepEqual(parseLabelFilter(' job=nightly  part=2=b empty= '), {
    job: 'nightly',
    part: '2=b',
    empty: '',
  });
  assert.deepEqual(parseLabelFilter(''), {});
  assert.equal(parseLabelFilter('job'), undefined);
  assert.equal(parseLabelFilter('=x'), undefined);
  assert.equal(parseLabelFilter('a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1'), undefined);
});

test('every reason of the service has words of its own', () => {
  const texts = STATUS_REASONS.map(describeReason);
  assert.equal(new Set(texts).size, STATUS_REASONS.length);
  for (const [index, text] of texts.entries())
    assert.notEqual(text, STATUS_REASONS[index]?.replaceAll('_', ' '));
  assert.equal(describeReason('a_new_one'), 'a new one');
  assert.equal(describeReason('constructor'), 'constructor');
});
