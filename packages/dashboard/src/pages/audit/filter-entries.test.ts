import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AUDIT_EVENT_NAMES } from '../../../../contract/src/audit/audit.ts';
import {
  filterLines,
  isOfKind,
  KINDS,
  markOf,
  rangeLimits,
  toLine,
  type EntryFilter,
  type LogEntry,
} from './filter-entries.ts';

const MINUTE_MS = 60_000;
const START = Date.parse('2026-11-27T10:00:00.000Z');

function line(seq: number, event: string, data: Record<string, unknown>, actor = 'user1') {
  const ts = new Date(START + seq * MINUTE_MS).toISOString();
  const entry: LogEntry = { seq, ts, event, data, hmac: `sha256:${seq}` };
  return toLine(entry, [`Entry of ${event}`], { id: actor, name: [actor], address: '203.0.113.7' });
}

const LINES = [
  line(1, 'exec.start', { command: 'npm Test' }),
  line(2, 'network.blocked', { domain: 'evil.example' }, 'key1'),
  line(3, 'file.upload', { path: 'a.txt' }),
];
const found = (filter: Partial<EntryFilter>): number[] =>
  filterLines(LINES, { search: '', ...filter }).map(({ entry }) => entry.seq);

test('without a filter all entries are listed, newest first, and the log stays as it is', () => {
  assert.deepEqual(found({}), [3, 2, 1]);
  assert.equal(LINES[0]?.entry.seq, 1);
});

test('a search needs all its words, anywhere in the entry, in any case', () => {
  assert.deepEqual(found({ search: 'TEST  npm' }), [1]);
  assert.deepEqual(found({ search: 'evil key1' }), [2]);
  assert.deepEqual(found({ search: 'evil npm' }), []);
  assert.deepEqual(found({ search: '#3' }), [3]);
  assert.deepEqual(found({ search: '203.0.113.7' }), [3, 2, 1]);
});

test('event, actor and time each limit the list', () => {
  assert.deepEqual(found({ isWanted: (event) => event === 'file.upload' }), [3]);
  assert.deepEqual(found({ actor: 'key1' }), [2]);
  assert.deepEqual(found({ from: START + 2 * MINUTE_MS, to: START + 2 * MINUTE_MS }), [2]);
  assert.deepEqual(found({ from: START + 2 * MINUTE_MS }), [3, 2]);
});

test('every event of the contract is of one kind, and an unknown one only of all', () => {
  for (const event of AUDIT_EVENT_NAMES)
    assert.equal(KINDS.filter((kind) => isOfKind(event, kind)).length, 2, event);
  assert.deepEqual(
    KINDS.filter((kind) => isOfKind('constructor.x', kind)),
    ['all'],
  );
});

test('refusals and failures stand out', () => {
  const mark = (event: string, data: Record<string, unknown>) => markOf({ event, data });
  assert.equal(mark('network.blocked', {}), 'bad');
  assert.equal(mark('exec.exit', { exit_code: 0 }), 'calm');
  assert.equal(mark('exec.exit', { exit_code: 1 }), 'warn');
  assert.equal(mark('exec.exit', { exit_code: null }), 'warn');
  assert.equal(mark('file.upload', { complete: false }), 'warn');
  assert.equal(mark('credential.proxied', { status: 403 }), 'warn');
  assert.equal(mark('credential.proxied', { status: 200 }), 'calm');
});

test('a range counts back from now, and own limits may be empty or include their last minute', () => {
  const now = START;
  assert.deepEqual(rangeLimits('all', { from: '', to: '', now }), {});
  assert.deepEqual(rangeLimits('hour', { from: '', to: '', now }), { from: START - 3_600_000 });
  assert.deepEqual(rangeLimits('own', { from: '', to: 'soon', now }), { from: undefined, to: undefined });
  const local = '2026-11-27T10:00';
  const at = new Date(local).getTime();
  assert.deepEqual(rangeLimits('own', { from: local, to: local, now }), { from: at, to: at + 59_999 });
});
