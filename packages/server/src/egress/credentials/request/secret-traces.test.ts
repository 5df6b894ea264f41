import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Secret } from '../../../lib/secret.ts';
import { traceSecrets } from './secret-traces.ts';

const KEY = 'sk-Canary/7f3a9b';

function holds(text: string, key = KEY, sent = `Bearer ${key}`): boolean {
  return traceSecrets(new Secret(key), new Secret(sent)).holds(text);
}

test('a secret is found in every form in which a server would repeat it', () => {
  for (const text of [
    KEY,
    `Bearer ${KEY}`,
    `https://a.example/?key=${KEY}&x`,
    `https://a.example/?key=${encodeURIComponent(KEY)}`,
    KEY.toUpperCase(),
    Buffer.from(KEY).toString('base64'),
  ])
    assert.ok(holds(text), text);
  const pair = Buffer.from(`user:${KEY}`).toString('base64');
  assert.ok(holds(`was ${pair}`, KEY, `Basic ${pair}`));
});

test('other texts pass', () => {
  for (const text of ['', 'Bearer', 'sk-Canary', 'text/event-stream', 'Basic realm="x"'])
    assert.ok(!holds(text), text);
});

test('a short secret is found only as a whole word, so that most headers still pass', () => {
  assert.ok(holds('test', 'test'));
  assert.ok(holds('key "test"', 'test'));
  assert.ok(!holds('latest', 'test'));
  assert.ok(!holds('text/event-stream', 'x'));
});
