/**
 * Frames of a stream with the guest's processes, in both directions (docs/reference/agent-protocol.md):
 * `uint8 type, uint32be length, payload`. The guest is not trusted: lengths are bounded.
 */
export const FRAME = {
  head: 0,
  stdin: 1,
  stdinEnd: 2,
  signal: 3,
  resize: 4,
  run: 5,
  stdout: 16,
  stderr: 17,
  exit: 18,
  done: 19,
  position: 20,
} as const;

export const MAX_FRAME_BYTES = 1 << 20;
const HEADER_BYTES = 5;

export interface Frame {
  type: number;
  payload: Buffer;
}

export function encodeFrame(type: number, payload: Uint8Array = new Uint8Array(0)): Buffer {
  if (payload.length > MAX_FRAME_BYTES) throw new RangeError(`frame of ${payload.length} bytes`);
  const frame = Buffer.allocUnsafe(HEADER_BYTES + payload.length);
  frame.writeUInt8(type, 0);
  frame.writeUInt32BE(payload.length, 1);
  frame.set(payload, HEADER_BYTES);
  return frame;
}

/**
 * Splits a byte stream into frames. `push` throws RangeError for a frame longer than the limit. Each payload is copied
 * once into its own memory: however the guest cuts the stream, the work is linear and no payload keeps a chunk alive.
 */
export class FrameDecoder {
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #headerBytes = 0;
  #payload: Buffer | undefined;
  #payloadBytes = 0;

  /** True if the stream can end here without cutting a frame. */
  get atBoundary(): boolean {
    return this.#headerBytes === 0;
  }

  push(chunk: Buffer): Frame[] {
    const frames: Frame[] = [];
    let rest = this.#readHeader(chunk);
    while (this.#payload !== undefined) {
      const taken = rest.copy(this.#payload, this.#payloadBytes);
      this.#payloadBytes += taken;
      if (this.#payloadBytes < this.#payload.length) break;
      frames.push({ type: this.#header.readUInt8(0), payload: this.#payload });
      this.#headerBytes = 0;
      this.#payload = undefined;
      rest = this.#readHeader(rest.subarray(taken));
    }
    return frames;
  }

  /** Allocates the payload once the header is complete; returns the bytes after the header. */
  #readHeader(chunk: Buffer): Buffer {
    if (this.#payload !== undefined) return chunk;
    const taken = chunk.copy(this.#header, this.#headerBytes);
    this.#headerBytes += taken;
    if (this.#headerBytes === HEADER_BYTES) {
      const length = this.#header.readUInt32BE(1);
      if (length > MAX_FRAME_BYTES) throw new RangeError(`frame of ${length} bytes`);
      this.#payload = Buffer.allocUnsafe(length);
      this.#payloadBytes = 0;
    }
    return chunk.subarray(taken);
  }
}
