import type { Blob } from '../registry/blob-reader.ts';

/** Where an image's blobs come from. */
export interface ImageSource {
  /** Of the image, for errors. */
  name: string;
  /** Verified at its end: what was read is good only if the iteration ends without an error. */
  readBlob: (blob: Blob, signal: AbortSignal) => AsyncIterable<Buffer>;
}
