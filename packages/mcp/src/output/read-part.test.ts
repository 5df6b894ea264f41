import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { encodePart, readPart } from './read-part.ts';

/** A stream of chunks of a size, which tells how many it has produced and whether it was cancelled. */
function streamOf(bytes: Uint8Array, chunkBytes: number) {
  const seen = { chunks: 0, isCancelled: false };
  const stream = new ReadableStream<Uint8Array>(
    {
      pull: (controller) => {
        const chunk = bytes.subarray(seen.chunks * chunkBytes, (seen.chunks + 1) * chunkBytes);
        if (chunk.length === 0) return controller.close();
        seen.chunks += 1;
        controller.enqueue(chunk);
      },
      cancel: () => void (seen.isCancelled = true),
    },
    { highWaterMark: 0 },
  );
  return { stream, seen };
}

test('the byte behind the part says that the file continues', async () => {
  for (const [size, isEnd] of [
    [2999, true],
    [3000, true],
    [3001, false],
  ] as const) {
    const { stream, seen } = streamOf(Buffer.alloc(size), 1000);
    const part = await readPart(stream, 3000);
    assert.deepEqual([part.bytes.length, part.isEnd], [Math.min(size, 3000), isEnd]);
    // A stream that is cancelled would be logged as a connection that broke.
    assert.equal(seen.isCancelled, false);
  }
});

test('an empty stream gives an empty last part', async () => {
  const part = await readPart(streamOf(Buffer.alloc(0), 2).stream, 5);
  assert.deepEqual([part.bytes.length, part.isEnd], [0, true]);
  assert.deepEqual(encodePart(part), { content: '', encoding: 'utf8', length: 0 });
});

test('a character at the border of two parts belongs to the second', () => {
  const bytes = Buffer.from('ä€🐎');
  const first = encodePart({ bytes: bytes.subarray(0, 8), isEnd: false });
  assert.deepEqual(first, { content: 'ä€', encoding: 'utf8', length: 5 });
  const second = encodePart({ bytes: bytes.subarray(5), isEnd: true });
  assert.deepEqual(second, { content: '🐎', encoding: 'utf8', length: 4 });
});

test('content that is not UTF-8 is returned in base64', () => {
  for (const isEnd of [true, false])
    assert.deepEqual(encodePart({ bytes: Buffer.from([0xff, 0x00]), isEnd }), {
      content: '/wA=',
      encoding: 'base64',
      length: 2,
    });
  assert.equal(encodePart({ bytes: Buffer.from('ä').subarray(0, 1), isEnd: true }).encoding, 'base64');
});

test('parts of any text, read one after the other, give the text', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.string({ unit: 'binary', maxLength: 60 }),
      fc.integer({ min: 4, max: 9 }),
      fc.integer({ min: 1, max: 7 }),
      async (text, maxBytes, chunkBytes) => {
        const bytes = Buffer.from(text.toWellFormed());
        let read = '';
        for (let offset = 0; ;) {
          const part = await readPart(
            streamOf(bytes.subarray(offset, offset + maxBytes + 1), chunkBytes).stream,
            maxBytes,
          );
          const { content, encoding, length } = encodePart(part);
          assert.equal(encoding, 'utf8');
          read += content;
          offset += length;
          if (part.isEnd && length === part.bytes.length) break;
        }
        assert.equal(read, text.toWellFormed());
      },
    ),
  );
});
