import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import pino from 'pino';
import { Secret } from './secret.ts';

test('only reveal() shows a secret', () => {
  const secret = new Secret('hunter2');
  const lines: string[] = [];
  pino({}, { write: (line) => lines.push(line) }).info({ secret, deep: { err: [secret] } }, String(secret));
  const shown = [
    String(secret),
    JSON.stringify({ secret }),
    inspect(secret, { showHidden: true, depth: null }),
    inspect({ deep: [secret] }),
    new Error('failed', { cause: secret }).cause,
    ...lines,
  ];
  for (const text of shown) assert.ok(!String(text).includes('hunter2'), String(text));
  assert.match(lines[0] ?? '', /"secret":"\[secret\]"/);
  assert.equal(secret.reveal(), 'hunter2');
});
