import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { DnsStreamDecoder, encodeStreamMessage } from './dns-stream.ts';

test('messages are complete however the stream is split', () => {
  const anyMessages = fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 8 });
  fc.assert(
    fc.property(anyMessages, fc.integer({ min: 1, max: 50 }), (messages, chunkBytes) => {
      const stream = Buffer.concat(messages.map((message) => encodeStreamMessage(Buffer.from(message))));
      const decoder = new DnsStreamDecoder(300);
      const decoded: Buffer[] = [];
      for (let at = 0; at < stream.length; at += chunkBytes)
        decoded.push(...decoder.push(stream.subarray(at, at + chunkBytes)));
      assert.deepEqual(
        decoded,
        messages.map((message) => Buffer.from(message)),
      );
    }),
  );
});

test('a message over the limit is refused by its length alone', () => {
  assert.throws(() => new DnsStreamDecoder(100).push(Buffer.from([0, 101])), RangeError);
});
