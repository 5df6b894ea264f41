import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RanFor } from './ran-for.ts';

test('between a request and its answer a sandbox may have run, between two answers it must have run', () => {
  const ranFor = new RanFor();
  ranFor.noteRunning(100, 40);
  assert.deepEqual(ranFor.countTo(150), { atLeastMs: 50, atMostMs: 110 });
  ranFor.noteUncertain(200);
  ranFor.noteStopped(230);
  assert.deepEqual(ranFor.countTo(1000), { atLeastMs: 100, atMostMs: 190 });
  ranFor.noteUncertain(1000);
  ranFor.noteRunning(1010);
  assert.deepEqual(ranFor.countTo(1020), { atLeastMs: 110, atMostMs: 210 });
});

test('a sandbox whose VM is killed before its create is answered may have run since the request', () => {
  const ranFor = new RanFor();
  ranFor.noteUncertain(100);
  ranFor.noteRunning(110, 40);
  assert.deepEqual(ranFor.countTo(120), { atLeastMs: 10, atMostMs: 80 });
});
