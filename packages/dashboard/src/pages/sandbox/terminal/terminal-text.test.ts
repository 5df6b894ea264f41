import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CoppiceError, type SandboxInfo } from '../../../../../sdk/src/index.ts';
import { cleanTitle, explainEnd } from './terminal-text.ts';

const RECORD = {
  status: 'running',
  operation: null,
  endedAt: null,
  statusReason: null,
} as unknown as SandboxInfo;

function lost(): { error: unknown } {
  return { error: new CoppiceError('closed', { status: 0, code: 'connection_failed' }) };
}

test('a title is one short line of plain text', () => {
  assert.equal(cleanTitle('root@box: /workspace', 1), 'root@box: /workspace');
  assert.equal(cleanTitle('a\nb\u001B[31m\u202Ec', 1), 'a b [31m c');
  assert.equal(cleanTitle(' \u0007 ', 3), 'Shell 3');
  const long = cleanTitle('😀'.repeat(500), 1);
  assert.equal(Array.from(long).length, 60);
  assert.ok(long.endsWith('😀…'));
});

test('a shell that exits can be opened again', () => {
  assert.deepEqual(explainEnd({ exitCode: 0 }, RECORD), {
    text: 'The shell has ended.',
    remedy: 'reconnect',
  });
  assert.match(explainEnd({ exitCode: 130 }, RECORD).text, /exit code 130/u);
});

test('a lost connection says so, and offers another', () => {
  const { text, remedy } = explainEnd(lost(), RECORD);
  assert.match(text, /connection was lost/u);
  assert.equal(remedy, 'reconnect');
});

test('the end of the sandbox explains the end of its terminals', () => {
  const ended = {
    ...RECORD,
    status: 'destroyed',
    endedAt: '2026-11-27T12:00:00Z',
    statusReason: 'idle_timeout',
  };
  for (const cause of [lost(), { exitCode: 129 }]) {
    const { text, remedy } = explainEnd(cause, ended);
    assert.match(text, /has ended\. It was idle/u);
    assert.equal(remedy, 'none');
  }
});

test('a hibernated sandbox offers to resume, also while it is hibernating', () => {
  for (const part of [{ status: 'hibernated' }, { operation: 'hibernating' }]) {
    const { text, remedy } = explainEnd(lost(), { ...RECORD, ...part });
    assert.match(text, /hibernated/u);
    assert.equal(remedy, 'resume');
  }
});

test('an error of the service is shown as it is', () => {
  const error = new CoppiceError('HTTP 403', { status: 403, code: 'forbidden', detail: 'The key may not.' });
  assert.equal(explainEnd({ error }, RECORD).text, 'The key may not.');
});
