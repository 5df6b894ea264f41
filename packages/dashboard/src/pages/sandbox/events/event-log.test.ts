import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EVENT_TYPES } from '../../../../../contract/src/events/events.ts';
import type { EventInfo } from '../../../../../sdk/src/index.ts';
import { groupOf, MAX_KEPT, mergeEvents } from './event-log.ts';

const event = (id: number): EventInfo => ({
  id,
  type: 'sandbox.created',
  timestamp: '2026-11-27T06:30:00.000Z',
  teamId: 'team1',
  runId: 'run1',
  labels: {},
  data: {},
});
const idsOf = (events: readonly EventInfo[]): number[] => events.map(({ id }) => id);

test('events are merged newest first, and each appears once', () => {
  const known = mergeEvents([], [event(1), event(5), event(3), event(5)]);
  assert.deepEqual(idsOf(known), [5, 3, 1]);
  assert.deepEqual(idsOf(mergeEvents(known, [event(4), event(5), event(9)])), [9, 5, 4, 3, 1]);
});

test('without news the list is the same object, so nothing is drawn again', () => {
  const known = [event(2), event(1)];
  assert.equal(mergeEvents(known, [event(1)]), known);
});

test('the oldest events are left out of a long list', () => {
  const many = Array.from({ length: MAX_KEPT + 10 }, (_, index) => event(index));
  const kept = mergeEvents([], many);
  assert.equal(kept.length, MAX_KEPT);
  assert.equal(kept[0]?.id, MAX_KEPT + 9);
});

test('every type has a group', () => {
  const groups = new Map(EVENT_TYPES.map((type) => [type, groupOf(type)]));
  assert.equal(groups.get('sandbox.failed'), 'life');
  assert.equal(groups.get('snapshot.deleted'), 'life');
  assert.equal(groups.get('command.exited'), 'commands');
  assert.equal(groups.get('network.blocked'), 'network');
  assert.equal(groups.get('disk.attached'), 'other');
});
