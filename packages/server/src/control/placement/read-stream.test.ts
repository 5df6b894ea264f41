import assert from 'node:assert/strict';
import type { ClientHttp2Stream } from 'node:http2';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { stretched } from '../../lib/waiting/deadline.ts';
import { readLines } from './read-stream.ts';

const LIMITS = { maxLineBytes: 100, idleDeadlineMs: 50 };

function openLines() {
  const body = Object.assign(new PassThrough(), { close: () => undefined });
  return { body, lines: readLines(body as unknown as ClientHttp2Stream, LIMITS) };
}

test('a reader that pauses loses no lines', async () => {
  const { body, lines } = openLines();
  body.write('a\nb\n');
  assert.equal((await lines.next()).value, 'a');
  await delay(3 * stretched(LIMITS.idleDeadlineMs));
  assert.equal((await lines.next()).value, 'b');
  body.end('c\n');
  assert.equal((await lines.next()).value, 'c');
  assert.equal((await lines.next()).done, true);
});

test('a body that is silent between two lines is an error', { timeout: 20_000 }, async () => {
  const { body, lines } = openLines();
  body.write('a\n');
  assert.equal((await lines.next()).value, 'a');
  await assert.rejects(lines.next(), { code: 'guest_unreachable' });
});
