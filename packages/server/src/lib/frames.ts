/**
 * Frames of an exec stream, in both directions (docs/reference/agent-protocol.md):
 * `uint8 type, uint32be length, payload`. The far end is not trusted: lengths are bounded.
 */
export const FRAME = { head: 0, stdin: 1, stdinEnd: 2, signal: 3, stdout: 16, stderr: 17, exit: 18 } as const;

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

/** Splits a byte stream into frames. Throws RangeError on a frame longer than the limit. */
export class FrameDecoder {
  #pending: Buffer = Buffer.alloc(0);

  /** True when the stream may end here without having cut a frame. */
  get atBoundary(): boolean {
    return this.#pending.length === 0;
  }

  push(chunk: Buffer): Frame[] {
    let rest = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    const frames: Frame[] = [];
    while (rest.length >= HEADER_BYTES) {
      const length = rest.readUInt32BE(1);
      if (length > MAX_FRAME_BYTES) throw new RangeError(`frame of ${length} bytes`);
      if (rest.length < HEADER_BYTES + length) break;
      frames.push({ type: rest.readUInt8(0), payload: rest.subarray(HEADER_BYTES, HEADER_BYTES + length) });
      rest = rest.subarray(HEADER_BYTES + length);
    }
    this.#pending = rest;
    return frames;
  }
}
