import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pollUntil } from '../waiting/deadline.ts';
import { BlockedNotes } from './blocked-notes.ts';

const INTERVAL_MS = 60;
const LONG_MS = 60_000;

interface Data {
  domain?: string;
  ip?: string;
  port?: number;
  reason: string;
  count: number;
}

function collect(isTaken: () => boolean = () => true, intervalMs = INTERVAL_MS) {
  const told: Data[] = [];
  const notes = new BlockedNotes({
    intervalMs,
    offer: ({ data }) => {
      if (isTaken()) told.push(data as Data);
      return isTaken();
    },
  });
  const add = (data: Omit<Data, 'count'>) =>
    notes.add({ event: 'network.blocked', ts: new Date().toISOString(), data: { ...data, count: 1 } });
  return { told, notes, add };
}

const sum = (told: Data[]) => told.reduce((total, { count }) => total + count, 0);
const until = (check: () => boolean) =>
  pollUntil({ step: 'notes', timeoutMs: 5000, intervalMs: 5 }, () => (check() ? true : undefined));

test('the first refusal is reported at once, later ones with their count, separately for each destination', async () => {
  const { told, add } = collect();
  for (let index = 0; index < 1000; index += 1) add({ ip: '203.0.113.1', port: 80, reason: 'not_allowed' });
  add({ ip: '203.0.113.1', port: 81, reason: 'not_allowed' });
  assert.deepEqual(told, [
    { ip: '203.0.113.1', port: 80, reason: 'not_allowed', count: 1 },
    { ip: '203.0.113.1', port: 81, reason: 'not_allowed', count: 1 },
  ]);
  await until(() => told.length === 3);
  assert.deepEqual(told[2], { ip: '203.0.113.1', port: 80, reason: 'not_allowed', count: 999 });
});

test('a guest that tries countless destinations causes few notes, and no refusal is lost', () => {
  const { told, notes, add } = collect(() => true, LONG_MS);
  for (let index = 0; index < 100_000; index += 1)
    add({ domain: `host-${index}.test`, port: 443, reason: index % 2 === 0 ? 'not_allowed' : 'name_hidden' });
  assert.ok(told.length <= 256 + 2, `${told.length} notes`);
  assert.deepEqual(notes.end(), []);
  assert.equal(sum(told), 100_000);
  assert.ok(told.length <= 256 + 4, `${told.length} notes`);
});

test('refusals that the outbox rejects stay counted and are reported when there is room', async () => {
  let hasRoom = false;
  const { told, add } = collect(() => hasRoom);
  for (let index = 0; index < 5; index += 1) add({ domain: 'a.test', reason: 'not_allowed' });
  assert.equal(told.length, 0);
  hasRoom = true;
  await until(() => told.length === 1);
  assert.equal(told[0]?.count, 5);
});

test('end returns the remaining refusals, grouped by reason', () => {
  const { notes, add } = collect(() => false);
  for (let index = 0; index < 300; index += 1)
    add({ domain: `host-${index}.test`, reason: index < 100 ? 'not_allowed' : 'name_hidden' });
  const left = notes.end().map(({ data }) => data);
  assert.deepEqual(left, [
    { reason: 'not_allowed', count: 100 },
    { reason: 'name_hidden', count: 200 },
  ]);
});
