import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import fc from 'fast-check';
import { LayerError } from '../../../lib/tar/layer-error.ts';
import { unpackLayer } from './layer-unpacking.ts';
import { makeScratchDirectory } from '../testing/scratch-directory.ts';

const TIMEOUT_MS = 60_000;
/** A frame that decoders skip; zstd:chunked layers have them. */
const SKIPPED = Buffer.concat([Buffer.from([0x50, 0x2a, 0x4d, 0x18, 5, 0, 0, 0]), Buffer.from('skip!')]);

async function* cut(data: Buffer, sizes: readonly number[]): AsyncGenerator<Buffer> {
  let at = 0;
  for (let index = 0; at < data.length; index++) {
    const end = at + (sizes[index % sizes.length] ?? data.length);
    yield data.subarray(at, end);
    at = end;
  }
}

async function unpack(data: Buffer, sizes: readonly number[] = [1000], maxBytes = 1 << 30): Promise<Buffer> {
  await using scratch = await makeScratchDirectory();
  const targetPath = join(scratch.path, 'layer');
  const digest = await unpackLayer(cut(data, sizes), {
    targetPath,
    maxBytes,
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  const unpacked = await readFile(targetPath);
  assert.equal(digest, `sha256:${createHash('sha256').update(unpacked).digest('hex')}`);
  return unpacked;
}

test('gzip, zstd and plain layers are recognized by their first bytes', async () => {
  const data = Buffer.alloc(10_000, 'some words that repeat ');
  for (const packed of [data, gzipSync(data), zstdCompressSync(data), Buffer.alloc(0), Buffer.from('ab')]) {
    const wanted = packed.length < 10 ? packed : data;
    assert.ok((await unpack(packed, [1])).equals(wanted));
    assert.ok((await unpack(packed)).equals(wanted));
  }
});

test('several members or frames are one layer, in chunks of any size', async () => {
  const parts = [Buffer.from('one'), Buffer.alloc(300_000, 'two'), Buffer.alloc(0), Buffer.from('four')];
  const whole = Buffer.concat(parts);
  const zstd = Buffer.concat([SKIPPED, ...parts.flatMap((part) => [zstdCompressSync(part), SKIPPED])]);
  const gzip = Buffer.concat(parts.map((part) => gzipSync(part)));
  const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 10 });
  await fc.assert(
    fc.asyncProperty(sizes, async (sizes) => {
      assert.ok((await unpack(zstd, sizes)).equals(whole));
    }),
    { numRuns: 50 },
  );
  assert.ok((await unpack(zstd, [zstd.length])).equals(whole), 'in one chunk');
  assert.ok((await unpack(gzip, [gzip.length])).equals(whole));
  assert.ok((await unpack(gzip, [7])).equals(whole));
});

test('zstd data of many blocks, and with a checksum, is read to its end', async () => {
  const random = Buffer.alloc(1_000_000);
  for (let index = 0; index < random.length; index++) random[index] = (index * index * 31) % 251;
  const { ZSTD_c_checksumFlag, ZSTD_c_contentSizeFlag } = (await import('node:zlib')).constants;
  for (const params of [{ [ZSTD_c_checksumFlag]: 1 }, { [ZSTD_c_contentSizeFlag]: 0 }]) {
    const frame = zstdCompressSync(random, { params });
    const twice = Buffer.concat([frame, frame]);
    assert.ok((await unpack(twice, [65_536])).equals(Buffer.concat([random, random])));
  }
});

test('layers that are damaged, truncated or too large when unpacked are refused', async () => {
  const data = Buffer.alloc(1_000_000, 'x');
  const [gzip, zstd] = [gzipSync(data), zstdCompressSync(data)];
  const noise = Buffer.alloc(100, 'noise');
  for (const damaged of [
    gzip.subarray(0, -20),
    zstd.subarray(0, -5),
    Buffer.concat([gzip.subarray(0, 30), noise]),
    Buffer.concat([zstd, noise]),
    Buffer.concat([zstd.subarray(0, 6), noise]),
  ]) {
    await assert.rejects(unpack(damaged), LayerError);
  }
  for (const bomb of [data, gzip, zstd]) {
    await assert.rejects(unpack(bomb, [1000], 999_999), /unpacks to more than 999999 bytes/u);
  }
});

test('an error of the source is thrown unchanged, and the source is closed', async () => {
  await using scratch = await makeScratchDirectory();
  let isEnded = false;
  async function* failing(): AsyncGenerator<Buffer> {
    try {
      yield gzipSync(Buffer.alloc(100_000, 'x')).subarray(0, 50);
      throw new RangeError('the source failed');
    } finally {
      isEnded = true;
    }
  }
  const options = {
    targetPath: join(scratch.path, 'layer'),
    maxBytes: 1 << 20,
    signal: AbortSignal.timeout(TIMEOUT_MS),
  };
  await assert.rejects(unpackLayer(failing(), options), /the source failed/u);
  assert.ok(isEnded);
  assert.ok((await readdir(scratch.path)).length <= 1);
});
