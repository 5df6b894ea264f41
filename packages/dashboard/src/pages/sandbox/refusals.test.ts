import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EventInfo } from '../../../../sdk/src/index.ts';
import { addRefusals, describeTarget, NO_REFUSALS } from './refusals.ts';

function event(id: number, refusals: unknown, leftOut = 0, type = 'network.blocked'): EventInfo {
  const timestamp = new Date(1_800_000_000_000 + id * 1000).toISOString();
  const data = { count: 1, refusals, left_out: leftOut };
  return { id, type, timestamp, teamId: null, runId: 'run1', labels: {}, data };
}

const API = { domain: 'api.example.com', ip: '203.0.113.7', port: 443, reason: 'not_allowed', count: 2 };

test('refusals of one kind are counted together, whatever address the name had, newest first', () => {
  const other = { ip: '203.0.113.9', port: 22, reason: 'name_missing', count: 1 };
  const all = addRefusals(NO_REFUSALS, [
    event(1, [API]),
    event(2, [other]),
    event(3, [{ ...API, ip: '203.0.113.8', count: 3 }], 4),
  ]);
  assert.deepEqual(
    all.kinds.map((kind) => [describeTarget(kind), kind.ip, kind.count]),
    [
      ['api.example.com:443', '203.0.113.8', 5],
      ['203.0.113.9:22', '203.0.113.9', 1],
    ],
  );
  assert.equal(all.leftOut, 4);
  assert.equal(all.lastId, 3);
});

test('an event that is read twice, or of another type, counts once or not at all', () => {
  const first = addRefusals(NO_REFUSALS, [event(5, [API])]);
  const again = addRefusals(first, [event(5, [API]), event(4, [API]), event(6, [API], 0, 'sandbox.created')]);
  assert.equal(again.kinds[0]?.count, 2);
});

test('another reason, port or address without a name is another kind', () => {
  const all = addRefusals(NO_REFUSALS, [
    event(1, [
      API,
      { ...API, port: 80 },
      { ...API, reason: 'denied_by_rule' },
      { ip: '203.0.113.1', reason: 'not_allowed', count: 1 },
      { ip: '203.0.113.2', reason: 'not_allowed', count: 1 },
    ]),
  ]);
  assert.equal(all.kinds.length, 5);
});

test('data of another shape is harmless, and the number of kinds is bounded', () => {
  assert.deepEqual(addRefusals(NO_REFUSALS, [event(1, 'x'), event(2, [null, 3])]).kinds, []);
  const [odd] = addRefusals(NO_REFUSALS, [event(1, [{ domain: 7, count: 'x' }])]).kinds;
  assert.deepEqual([odd?.domain, odd?.reason, odd?.count], [undefined, 'unknown', 0]);
  const many = Array.from({ length: 600 }, (_, id) => event(id + 1, [{ ...API, domain: `n${id}.example` }]));
  assert.equal(addRefusals(NO_REFUSALS, many).kinds.length, 500);
});
