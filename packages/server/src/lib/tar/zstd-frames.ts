/**
 * Splits zstd data at the ends of its frames (RFC 8878, 3.1). Layers may have several frames, some of them skippable;
 * Node's decoder silently drops the data that follows the end of a frame in the same chunk.
 */
import { LayerError } from './layer-error.ts';

const MAGIC = 0xfd2fb528;
const SKIPPABLE_MAGIC = 0x184d2a50;
const MAX_HEADER_BYTES = 8;
const DICTIONARY_BYTES = [0, 1, 2, 4];
const CONTENT_SIZE_BYTES = [0, 2, 4, 8];
const CHECKSUM_BYTES = 4;
const RLE_BLOCK = 1;

type Header = 'magic' | 'skippable-size' | 'descriptor' | 'block';
const HEADER_BYTES: Readonly<Record<Header, number>> = {
  magic: 4,
  'skippable-size': 4,
  descriptor: 1,
  block: 3,
};

/** Yields the same bytes, in chunks of one frame each at most. */
export async function* splitZstdFrames(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const frames = new FrameReader();
  for await (const chunk of source) {
    let start = 0;
    while (start < chunk.length) {
      const end = frames.findEnd(chunk, start);
      yield chunk.subarray(start, end);
      start = end;
    }
  }
}

class FrameReader {
  readonly #collected = Buffer.alloc(MAX_HEADER_BYTES);
  #collectedBytes = 0;
  #header: Header = 'magic';
  /** Number of bytes to pass before the next header. */
  #passingBytes = 0;
  #hasChecksum = false;
  #isLast = false;

  /** Reads until the end of the frame or of the chunk, and returns that offset. */
  findEnd(chunk: Buffer, start: number): number {
    let at = start;
    while (at < chunk.length) {
      const passed = Math.min(this.#passingBytes, chunk.length - at);
      at += passed;
      this.#passingBytes -= passed;
      if (this.#passingBytes > 0) return at;
      if (this.#isLast) {
        this.#isLast = false;
        this.#header = 'magic';
        return at;
      }
      const wanted = HEADER_BYTES[this.#header] - this.#collectedBytes;
      const copied = chunk.copy(this.#collected, this.#collectedBytes, at, at + wanted);
      at += copied;
      this.#collectedBytes += copied;
      if (copied < wanted) return at;
      this.#collectedBytes = 0;
      this.#read();
    }
    return this.#endAt(at);
  }

  /** A frame may end with the chunk. */
  #endAt(at: number): number {
    if (this.#isLast && this.#passingBytes === 0) {
      this.#isLast = false;
      this.#header = 'magic';
    }
    return at;
  }

  #read(): void {
    switch (this.#header) {
      case 'magic':
        return this.#readMagic();
      case 'skippable-size':
        this.#passingBytes = this.#collected.readUInt32LE();
        this.#isLast = true;
        return;
      case 'descriptor':
        return this.#readDescriptor();
      case 'block':
        return this.#readBlock();
    }
  }

  #readMagic(): void {
    const magic = this.#collected.readUInt32LE();
    if (magic === MAGIC) this.#header = 'descriptor';
    else if ((magic & 0xfffffff0) >>> 0 === SKIPPABLE_MAGIC) this.#header = 'skippable-size';
    else throw new LayerError('its zstd data is damaged');
  }

  #readDescriptor(): void {
    const descriptor = this.#collected.readUInt8();
    const isSingleSegment = (descriptor & 0x20) !== 0;
    const sizeFlag = descriptor >> 6;
    const contentSizeBytes = sizeFlag === 0 && isSingleSegment ? 1 : (CONTENT_SIZE_BYTES[sizeFlag] ?? 0);
    const dictionaryBytes = DICTIONARY_BYTES[descriptor & 3] ?? 0;
    this.#hasChecksum = (descriptor & 4) !== 0;
    this.#passingBytes = (isSingleSegment ? 0 : 1) + dictionaryBytes + contentSizeBytes;
    this.#header = 'block';
  }

  #readBlock(): void {
    const block = this.#collected.readUIntLE(0, 3);
    const isRle = ((block >> 1) & 3) === RLE_BLOCK;
    this.#isLast = (block & 1) !== 0;
    this.#passingBytes = isRle ? 1 : block >> 3;
    if (this.#isLast && this.#hasChecksum) this.#passingBytes += CHECKSUM_BYTES;
  }
}
