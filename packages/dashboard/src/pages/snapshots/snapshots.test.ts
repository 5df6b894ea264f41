import assert from 'node:assert/strict';
import { test } from 'node:test';
import { filterSnapshots } from './filter-snapshots.ts';
import { parsePairs } from './parse-pairs.ts';
import { fromFieldTime, toFieldTime } from './snapshot-times.ts';

test('a time survives the field of a form to the minute, and none stays none', () => {
  assert.equal(fromFieldTime(toFieldTime('2026-11-27T11:30:45.000Z')), '2026-11-27T11:30:00.000Z');
  assert.equal(toFieldTime(null), '');
  assert.equal(fromFieldTime(''), null);
  assert.equal(fromFieldTime('nonsense'), null);
});

test('pairs are read line by line, and a wrong line is named', () => {
  assert.deepEqual(parsePairs('job=nightly\n\n part = 2=b \n'), { job: 'nightly', part: '2=b' });
  assert.throws(() => parsePairs('a=1\nb'), /Line 2/u);
  assert.throws(() => parsePairs('=x'), /Line 1/u);
});

test('snapshots are found by words of name, id, sandbox or image', () => {
  const base = {
    vcpus: 1,
    memMiB: 1,
    diskMiB: 1,
    sizeBytes: 1,
    boundTo: {},
    createdAt: '',
    expiresAt: null,
    disk: null,
  };
  const snapshots = [
    { ...base, id: 'snap1', runId: 'run1', name: 'Installed', image: 'node:22' },
    { ...base, id: 'snap2', runId: 'run2', name: null, image: 'python:3' },
  ];
  const find = (search: string): string[] => filterSnapshots(snapshots, search).map(({ id }) => id);
  assert.deepEqual(find('installed node'), ['snap1']);
  assert.deepEqual(find('run2'), ['snap2']);
  assert.deepEqual(find(' '), ['snap1', 'snap2']);
  assert.deepEqual(find('installed python'), []);
});
