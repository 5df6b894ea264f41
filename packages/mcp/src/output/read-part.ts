/** Part of a file. */
export interface Part {
  bytes: Uint8Array;
  /** False if the file has more. */
  isEnd: boolean;
}

/** Reads a stream that has at most one byte more than `maxBytes`, and returns at most `maxBytes`. */
export async function readPart(stream: ReadableStream<Uint8Array>, maxBytes: number): Promise<Part> {
  const bytes = Buffer.from(await new Response(stream).arrayBuffer());
  return { bytes: bytes.subarray(0, maxBytes), isEnd: bytes.length <= maxBytes };
}

/** Bytes as a tool returns them: as text if they are UTF-8, else in base64. */
export interface EncodedPart {
  content: string;
  encoding: 'utf8' | 'base64';
  /** Bytes that `content` stands for: fewer than given if the last character is incomplete. */
  length: number;
}

export function encodePart({ bytes, isEnd }: Part): EncodedPart {
  const text = decodeText(bytes, isEnd);
  if (text !== undefined) return { content: text, encoding: 'utf8', length: Buffer.byteLength(text) };
  return { content: Buffer.from(bytes).toString('base64'), encoding: 'base64', length: bytes.length };
}

/** Returns undefined for bytes that are not UTF-8. A character that more bytes may complete is left to the next part. */
function decodeText(bytes: Uint8Array, isEnd: boolean): string | undefined {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes, { stream: !isEnd });
    // A part that is shorter than its first character would never proceed.
    return text === '' && bytes.length > 0 ? undefined : text;
  } catch {
    // Not UTF-8: the caller encodes the bytes.
    return undefined;
  }
}
