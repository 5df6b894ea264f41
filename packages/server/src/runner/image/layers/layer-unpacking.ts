/** Unpacks a stored layer (gzip, zstd or plain) to its archive. The first bytes decide: media types are often wrong. */
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { PassThrough, Readable, Transform, type TransformCallback } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import { LayerError } from '../../../lib/tar/layer-error.ts';
import { splitZstdFrames } from '../../../lib/tar/zstd-frames.ts';

const MAGIC_BYTES = 4;
const GZIP_MAGIC = Buffer.from([0x1f, 0x8b]);
const ZSTD_MAGIC = Buffer.from([0x28, 0xb5, 0x2f, 0xfd]);
/** Magic of a skippable frame, which may come first, without its first byte, which varies in its low half. */
const ZSTD_SKIPPABLE_MAGIC = Buffer.from([0x2a, 0x4d, 0x18]);
/** Larger than Node's default, as each chunk costs an iteration of the event loop. */
const CHUNK_BYTES = 256 * 1024;

export interface UnpackOptions {
  targetPath: string;
  /** Largest size of the archive. */
  maxBytes: number;
  signal: AbortSignal;
}

/**
 * Writes the archive and returns its digest. Throws {@link LayerError} on damaged or too large data, or `source`'s
 * error.
 */
export async function unpackLayer(source: AsyncIterable<Buffer>, options: UnpackOptions): Promise<string> {
  const { targetPath, maxBytes, signal } = options;
  const meter = new HashingMeter(maxBytes);
  const chunks = source[Symbol.asyncIterator]();
  try {
    const head = await readHead(chunks);
    const [input, decoder] = chooseDecoder(head, joinHead(head, chunks));
    const target = createWriteStream(targetPath, { highWaterMark: 4 * CHUNK_BYTES, mode: 0o600 });
    await pipeline(
      Readable.from(input, { objectMode: false, highWaterMark: CHUNK_BYTES }),
      decoder,
      meter,
      target,
      {
        signal,
      },
    );
    return meter.digest();
  } catch (error) {
    signal.throwIfAborted();
    const code = error instanceof Error ? ((error as NodeJS.ErrnoException).code ?? '') : '';
    if (!/^(?:Z_|ZSTD_)/u.test(code)) throw error;
    throw new LayerError('its compressed data is damaged', { cause: error });
  } finally {
    await chunks.return?.();
  }
}

async function readHead(chunks: AsyncIterator<Buffer>): Promise<Buffer> {
  let head: Buffer = Buffer.alloc(0);
  while (head.length < MAGIC_BYTES) {
    const next = await chunks.next();
    if (next.done === true) break;
    head = Buffer.concat([head, next.value]);
  }
  return head;
}

async function* joinHead(head: Buffer, chunks: AsyncIterator<Buffer>): AsyncGenerator<Buffer> {
  if (head.length > 0) yield head;
  for (let next = await chunks.next(); next.done !== true; next = await chunks.next()) yield next.value;
}

function chooseDecoder(head: Buffer, data: AsyncIterable<Buffer>): [AsyncIterable<Buffer>, Transform] {
  if (head.subarray(0, 2).equals(GZIP_MAGIC)) return [data, createGunzip({ chunkSize: CHUNK_BYTES })];
  const isZstd =
    head.subarray(0, MAGIC_BYTES).equals(ZSTD_MAGIC) ||
    head.subarray(1, MAGIC_BYTES).equals(ZSTD_SKIPPABLE_MAGIC);
  if (isZstd) return [splitZstdFrames(data), createZstdDecompress({ chunkSize: CHUNK_BYTES })];
  return [data, new PassThrough()];
}

class HashingMeter extends Transform {
  readonly #hash = createHash('sha256');
  readonly #maxBytes: number;
  #bytes = 0;

  constructor(maxBytes: number) {
    super({ highWaterMark: CHUNK_BYTES });
    this.#maxBytes = maxBytes;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#bytes += chunk.length;
    if (this.#bytes > this.#maxBytes) {
      done(new LayerError(`it unpacks to more than ${this.#maxBytes} bytes`));
      return;
    }
    this.#hash.update(chunk);
    done(null, chunk);
  }

  digest(): string {
    return `sha256:${this.#hash.digest('hex')}`;
  }
}
