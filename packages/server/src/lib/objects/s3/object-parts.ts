import type { ObjectContent } from '../object-store.ts';

export interface ObjectPart {
  bytes: Buffer;
  isLast: boolean;
}

/**
 * Cuts content into parts of exactly `partBytes`; only the last one may be smaller, or empty if it is the only one. Holds
 * one part and one piece of the content in memory.
 */
export async function* cutParts(content: ObjectContent, partBytes: number): AsyncGenerator<ObjectPart> {
  let pieces: Uint8Array[] = [];
  let held = 0;
  for await (const piece of content) {
    let rest = typeof piece === 'string' ? Buffer.from(piece) : piece;
    while (rest.length > 0) {
      if (held === partBytes) {
        yield { bytes: Buffer.concat(pieces), isLast: false };
        pieces = [];
        held = 0;
      }
      const taken = rest.subarray(0, partBytes - held);
      pieces.push(taken);
      held += taken.length;
      rest = rest.subarray(taken.length);
    }
  }
  yield { bytes: Buffer.concat(pieces), isLast: true };
}
