import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import { parseAuditLine, verifyAudit } from '../../../../sdk/src/index.ts';
import { readHead, readLines, writeHead, writeSandboxLog } from './log-text.ts';

const SECRET = `cts_${'s'.repeat(43)}`;

test('an exported log has the form of the service, and can be verified', async () => {
  const fields = {
    data: { command: 'echo "é\u202E\n"' },
    event: 'exec.start',
    sandbox_id: 'run0123456789abcdef0123',
    seq: 1,
    ts: '2026-11-27T06:30:00.000Z',
  };
  const text = `coppice-audit-v1:${fields.sandbox_id}\n${JSON.stringify(fields)}`;
  const hmac = `sha256:${createHmac('sha256', SECRET).update(text).digest('hex')}`;
  const written = writeSandboxLog([parseAuditLine(JSON.stringify({ ...fields, hmac }))]);
  assert.ok(written.endsWith('\n'));
  const verdict = await verifyAudit(readLines(written, parseAuditLine), SECRET, {
    head: readHead(writeHead({ seq: 1, hmac })),
  });
  assert.deepEqual(verdict, { valid: true, entries: 1, complete: true });
});

test('an empty log has no lines', () => {
  assert.deepEqual(readLines('', parseAuditLine), []);
  assert.equal(writeSandboxLog([]), '');
});

test('a head is read as the command line writes it, and another text is refused with the form', () => {
  const hmac = `sha256:${'0a'.repeat(32)}`;
  assert.deepEqual(readHead(` 57:${hmac}\n`), { seq: 57, hmac });
  assert.equal(readHead('  '), undefined);
  for (const text of ['57', `57:${hmac}0`, `x:${hmac}`, hmac, `57:${hmac.toUpperCase()}`])
    assert.throws(() => readHead(text), /57:sha256:/u);
});
