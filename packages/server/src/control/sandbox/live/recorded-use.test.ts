import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildSandboxRow } from '../../testing/sandbox-row.ts';
import { RecordedUse, type Use } from './recorded-use.ts';

const row = buildSandboxRow();
const AT_ROW: Use = { lastActiveAt: row.last_active_at, isInUse: false, operation: null };

test('a row that was just inserted or adopted needs no write until the sandbox is used', () => {
  const recorded = new RecordedUse(row);
  assert.equal(recorded.differs(AT_ROW), false);
  assert.equal(recorded.differs({ ...AT_ROW, lastActiveAt: AT_ROW.lastActiveAt + 3 }), false);
  for (const use of [
    { ...AT_ROW, lastActiveAt: AT_ROW.lastActiveAt + 500 },
    { ...AT_ROW, lastActiveAt: AT_ROW.lastActiveAt - 3_600_000 },
    { ...AT_ROW, isInUse: true },
    { ...AT_ROW, operation: 'forking' as const },
  ]) {
    assert.equal(recorded.differs(use), true);
    recorded.note(use);
    assert.equal(recorded.differs(use), false);
    recorded.note(AT_ROW);
  }
});

test('a change by the driver clears a recorded operation, so it is written again', () => {
  const recorded = new RecordedUse(row);
  const forking: Use = { ...AT_ROW, operation: 'forking' };
  recorded.note(forking);
  recorded.noteCommit(row);
  assert.equal(recorded.differs(forking), true);
  assert.equal(recorded.differs(AT_ROW), true);
});

test('a change by the driver records the last request that it writes', () => {
  const recorded = new RecordedUse(row);
  const later = { ...row, last_active_at: row.last_active_at + 60_000 };
  recorded.noteCommit(later);
  assert.equal(recorded.differs({ ...AT_ROW, lastActiveAt: later.last_active_at }), false);
  assert.equal(recorded.differs(AT_ROW), true);
});

test('a sandbox that was adopted hibernated is written once it runs: SQL may have the use of before', () => {
  const recorded = new RecordedUse({ ...row, status: 'hibernated' });
  assert.equal(recorded.differs(AT_ROW), true);
  recorded.noteCommit(row);
  assert.equal(recorded.differs(AT_ROW), true);
  recorded.note(AT_ROW);
  assert.equal(recorded.differs(AT_ROW), false);
});
