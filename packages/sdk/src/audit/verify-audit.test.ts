import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import { parseAuditLine, type AuditEntry } from './audit-entry.ts';
import type { AuditVerdict } from './audit-verdict.ts';
import { verifyAudit } from './verify-audit.ts';

const SECRET = `cts_${'s'.repeat(43)}`;
const SANDBOX = 'run0123456789abcdef0123';

/** Builds a log with the documented formula. The keys here are in the order of canonical JSON. */
function buildLog(events: readonly string[], { sandboxId = SANDBOX, secret = SECRET } = {}): AuditEntry[] {
  const log: AuditEntry[] = [];
  for (const [index, event] of events.entries()) {
    const previous = log.at(-1)?.hmac ?? `coppice-audit-v1:${sandboxId}`;
    const seq = index + 1;
    const ts = new Date(1_763_000_000_000 + index).toISOString();
    const data = { command: `é ${index}`, nested: { a: [null], b: 1 } };
    const text = `${previous}\n${JSON.stringify({ data, event, sandbox_id: sandboxId, seq, ts })}`;
    const hmac = `sha256:${createHmac('sha256', secret).update(text).digest('hex')}`;
    log.push({ seq, ts, sandboxId, event, data: { nested: data.nested, command: data.command }, hmac });
  }
  return log;
}

const names = (count: number): string[] => ['sandbox.created', ...Array(count - 1).fill('exec.start')];
const LOG = buildLog([...names(7), 'sandbox.destroyed']);
const HEAD = { seq: 8, hmac: LOG[7]!.hmac };

const renumber = (log: readonly AuditEntry[]): AuditEntry[] =>
  log.map((entry, place) => Object.assign({}, entry, { seq: place + 1 }));

function assertFault(verdict: AuditVerdict, problem: string, seq: number): void {
  assert.ok(!verdict.valid, 'the log counted as valid');
  assert.deepEqual([verdict.problem, verdict.seq], [problem, seq], verdict.message);
  assert.equal(verdict.entries, seq - 1);
}

test('a whole log is valid and complete, and every prefix is valid', async () => {
  assert.deepEqual(await verifyAudit(LOG, SECRET), { valid: true, entries: 8, complete: true });
  assert.deepEqual(await verifyAudit(LOG, SECRET, { head: HEAD }), {
    valid: true,
    entries: 8,
    complete: true,
  });
  for (let length = 0; length < LOG.length; length += 1) {
    const verdict = await verifyAudit(LOG.slice(0, length), SECRET);
    assert.deepEqual(verdict, { valid: true, entries: length, complete: false });
  }
});

test('every change of a field of an entry is found at that entry', async () => {
  const changes = fc.constantFrom<(entry: AuditEntry) => AuditEntry>(
    (entry) => ({ ...entry, ts: new Date(Date.parse(entry.ts) + 1).toISOString() }),
    (entry) => ({ ...entry, event: 'exec.exit' }),
    (entry) => ({ ...entry, data: { ...entry.data, command: `${String(entry.data['command'])} ` } }),
    (entry) => ({ ...entry, data: { ...entry.data, added: null } }),
    (entry) => ({ ...entry, data: {} }),
    (entry) => ({ ...entry, hmac: entry.hmac.replace(/.$/u, (digit) => (digit === '0' ? '1' : '0')) }),
    (entry) => ({ ...entry, hmac: entry.hmac.toUpperCase() }),
  );
  await fc.assert(
    fc.asyncProperty(fc.nat(LOG.length - 1), changes, async (index, change) => {
      assertFault(await verifyAudit(LOG.with(index, change(LOG[index]!)), SECRET), 'altered', index + 1);
    }),
  );
});

test('a missing entry is found at its place, including the first entry', async () => {
  for (let index = 0; index < LOG.length - 1; index += 1)
    assertFault(await verifyAudit(LOG.toSpliced(index, 1), SECRET), 'missing', index + 1);
});

test('two swapped entries are found at the first of them', async () => {
  for (let index = 0; index < LOG.length - 1; index += 1) {
    const swapped = LOG.with(index, LOG[index + 1]!).with(index + 1, LOG[index]!);
    assertFault(await verifyAudit(swapped, SECRET), 'reordered', index + 1);
  }
});

test('an inserted entry is found at its place, with a repeated number or with its own number', async () => {
  for (let index = 0; index < LOG.length - 1; index += 1) {
    const twice = LOG.toSpliced(index + 1, 0, LOG[index]!);
    assertFault(await verifyAudit(twice, SECRET), 'inserted', index + 2);
    const forged = { ...LOG[index]!, hmac: `sha256:${'0'.repeat(64)}` };
    const renumbered = renumber(LOG.toSpliced(index, 0, forged));
    assertFault(await verifyAudit(renumbered, SECRET), 'inserted', index + 1);
  }
});

test('a cut-off end is found by the head, and only by the head', async () => {
  for (let length = 0; length < LOG.length; length += 1)
    assertFault(await verifyAudit(LOG.slice(0, length), SECRET, { head: HEAD }), 'missing', length + 1);
  const early = { seq: 3, hmac: LOG[2]!.hmac };
  assert.equal((await verifyAudit(LOG, SECRET, { head: early })).valid, true);
  const other = await verifyAudit(LOG, SECRET, { head: { seq: 3, hmac: LOG[3]!.hmac } });
  assert.ok(!other.valid && other.problem === 'other_head');
  const none = await verifyAudit([], SECRET, { head: { seq: 0, hmac: null } });
  assert.deepEqual(none, { valid: true, entries: 0, complete: true });
});

test('entries of another sandbox are refused, even with the same secret', async () => {
  const other = buildLog(names(8), { sandboxId: 'runffffffffffffffffffff' });
  assertFault(await verifyAudit(LOG.with(4, other[4]!), SECRET), 'other_sandbox', 5);
  assertFault(await verifyAudit(other, SECRET, { sandboxId: SANDBOX }), 'other_sandbox', 1);
  const renamed = other.map((entry) => Object.assign({}, entry, { sandboxId: SANDBOX }));
  assertFault(await verifyAudit(renamed, SECRET), 'altered', 1);
});

test('another secret verifies no entry, and the message names it as a possible reason', async () => {
  const verdict = await verifyAudit(LOG, `${SECRET}x`);
  assertFault(verdict, 'altered', 1);
  assert.match(verdict.valid ? '' : verdict.message, /secret/u);
  await assert.rejects(verifyAudit(LOG, ''), /empty/u);
});

test('a line with a field that the hash does not cover is refused', () => {
  const line = { seq: 1, ts: '', sandbox_id: SANDBOX, event: 'exec.start', data: {}, hmac: '' };
  assert.equal(parseAuditLine(JSON.stringify(line)).sandboxId, SANDBOX);
  assert.throws(() => parseAuditLine(JSON.stringify({ ...line, note: 'approved' })), /no field "note"/u);
  assert.throws(() => parseAuditLine(JSON.stringify({ ...line, data: [] })), /data is not an object/u);
});
