/** Checks that readers return the same result however the bytes are split into chunks. */
import assert from 'node:assert/strict';

export interface ChunkReader<Result> {
  push(chunk: Uint8Array): Result;
}

/**
 * Returns the result of all bytes in one chunk. Asserts that each split in two, and single bytes, give the same result.
 */
export function readInAnyChunks<Result>(open: () => ChunkReader<Result>, bytes: Uint8Array): Result {
  const whole = open().push(bytes);
  assert.deepEqual(pushAll(open(), cut(bytes, 1)), whole, 'byte by byte');
  for (let at = 1; at < bytes.length; at += 1) {
    const reader = open();
    reader.push(bytes.subarray(0, at));
    assert.deepEqual(reader.push(bytes.subarray(at)), whole, `cut at ${at}`);
  }
  return whole;
}

export function cut(bytes: Uint8Array, size: number): Uint8Array[] {
  const count = Math.ceil(bytes.length / size);
  return Array.from({ length: count }, (_, index) => bytes.subarray(index * size, (index + 1) * size));
}

export function pushAll<Result>(
  reader: ChunkReader<Result>,
  chunks: readonly Uint8Array[],
): Result | undefined {
  let result: Result | undefined;
  for (const chunk of chunks) result = reader.push(chunk);
  return result;
}
