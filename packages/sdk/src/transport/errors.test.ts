import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import fc from 'fast-check';
import { buildAnswerError, CoppiceError, firstBytes, parseRetryAfterMs } from './errors.ts';
import { errorBody, LoopbackServer, sendJson, TEST_KEY } from '../testing/loopback-server.ts';

function failed(status: number, body: string, headers: Record<string, string> = {}): CoppiceError {
  return buildAnswerError('GET /v1/runs', {
    status,
    headers: new Headers(headers),
    body: new TextEncoder().encode(body),
  });
}

test('an error has status, code, request id and the full explanation', async () => {
  const long = `image is unknown: ${'x'.repeat(400)}`;
  await using server = await LoopbackServer.answering(404, errorBody('image_not_found', long));
  await assert.rejects(server.client().sandboxes.create(), (error) => {
    assert.ok(error instanceof CoppiceError);
    assert.equal(error.status, 404);
    assert.equal(error.code, 'image_not_found');
    assert.equal(error.requestId, 'req0a1b');
    assert.equal(error.detail, long);
    const body = JSON.stringify(errorBody('image_not_found', long));
    assert.ok(
      error.message.includes('404') && error.message.endsWith(`: ${body.slice(0, 200)}`),
      error.message,
    );
    return true;
  });
});

test('a body that is not from the service results in a code with the status', () => {
  for (const body of ['<html>', '', '[]', 'null', '{"error":"text"}', '{"error":{"code":7}}']) {
    const error = failed(502, body, { 'x-request-id': 'req7' });
    assert.deepEqual([error.code, error.requestId, error.detail], ['http_502', 'req7', undefined], body);
  }
});

test('an answer that contains the API key is shown without it', async () => {
  for (const status of [200, 404]) {
    await using server = await LoopbackServer.start(({ headers }, response) => {
      sendJson(response, { status, body: `echo: ${headers.authorization}` });
    });
    await assert.rejects(server.client().usage(), (error) => {
      assert.ok(error instanceof CoppiceError);
      assert.match(error.message, /echo: Bearer …$/u);
      return !inspect(error, { depth: 9 }).includes(TEST_KEY);
    });
  }
});

test('a redirect is reported with its target', () => {
  assert.match(failed(301, '', { location: 'https://h/v1/runs' }).message, /301.*https:\/\/h\/v1\/runs/);
});

test('the first bytes of a body are cut between characters', () => {
  assert.equal(firstBytes(new TextEncoder().encode(`${'a'.repeat(199)}€`)), 'a'.repeat(199));
  assert.equal(firstBytes(new TextEncoder().encode(`${'a'.repeat(197)}€€`)), `${'a'.repeat(197)}€`);
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 300 }), (text) => {
      const bytes = new TextEncoder().encode(text);
      const shown = firstBytes(bytes);
      const shownBytes = new TextEncoder().encode(shown).length;
      assert.ok(text.startsWith(shown));
      assert.ok(shownBytes <= 200 && shownBytes >= Math.min(bytes.length, 197));
    }),
  );
});

test('Retry-After is read as seconds and as a date', () => {
  assert.equal(parseRetryAfterMs('2'), 2000);
  assert.equal(parseRetryAfterMs('Thu, 01 Jan 1970 00:00:00 GMT'), 0);
  assert.ok((parseRetryAfterMs(new Date(Date.now() + 60_000).toUTCString()) ?? 0) > 50_000);
  assert.equal(parseRetryAfterMs('soon'), undefined);
  assert.equal(parseRetryAfterMs(null), undefined);
});
