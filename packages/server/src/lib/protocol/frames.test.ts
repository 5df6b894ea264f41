import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { encodeFrame, FRAME, FrameDecoder, MAX_FRAME_BYTES } from './frames.ts';

test('decoding returns the encoded frames, however the stream is cut', () => {
  const frames = fc.array(
    fc.record({ type: fc.integer({ min: 0, max: 255 }), payload: fc.uint8Array({ maxLength: 300 }) }),
  );
  fc.assert(
    fc.property(frames, fc.integer({ min: 1, max: 50 }), (sent, chunkBytes) => {
      const stream = Buffer.concat(sent.map((frame) => encodeFrame(frame.type, frame.payload)));
      const decoder = new FrameDecoder();
      const received = [];
      for (let at = 0; at < stream.length; at += chunkBytes)
        received.push(...decoder.push(stream.subarray(at, at + chunkBytes)));
      assert.deepEqual(
        received.map((frame) => ({ type: frame.type, payload: new Uint8Array(frame.payload) })),
        sent.map((frame) => ({ type: frame.type, payload: new Uint8Array(frame.payload) })),
      );
      assert.ok(decoder.atBoundary);
    }),
  );
});

test('a frame longer than the limit is refused before it is read', () => {
  const header = Buffer.from([FRAME.stdout, 0, 0, 0, 0]);
  header.writeUInt32BE(MAX_FRAME_BYTES + 1, 1);
  assert.throws(() => new FrameDecoder().push(header), RangeError);
});

test('a stream that ends inside a frame is not at a boundary', () => {
  const decoder = new FrameDecoder();
  decoder.push(encodeFrame(FRAME.stdout, Buffer.from('abc')).subarray(0, 6));
  assert.equal(decoder.atBoundary, false);
});

test('a payload has its own memory, however large its chunk is', () => {
  const chunk = Buffer.concat([
    encodeFrame(FRAME.stdout, Buffer.from('a')),
    encodeFrame(99, Buffer.alloc(MAX_FRAME_BYTES)),
  ]);
  const [frame] = new FrameDecoder().push(chunk);
  assert.notEqual(frame?.payload.buffer, chunk.buffer);
});

test('decoding a frame byte by byte takes linear time', () => {
  const frame = encodeFrame(FRAME.stdout, Buffer.alloc(MAX_FRAME_BYTES));
  const decoder = new FrameDecoder();
  const startedAt = performance.now();
  for (let at = 0; at < frame.length; at += 1) decoder.push(frame.subarray(at, at + 1));
  assert.ok(decoder.atBoundary);
  assert.ok(performance.now() - startedAt < 10_000, 'copied again and again');
});
