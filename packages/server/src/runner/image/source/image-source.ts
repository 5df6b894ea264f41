import type { Blob } from '../registry/blob-reader.ts';

/** The source of an image's blobs. */
export interface ImageSource {
  /** Name of the image, for errors. */
  name: string;
  /** Reads a blob and verifies it at its end: the data is valid only if the iteration ends without an error. */
  readBlob: (blob: Blob, signal: AbortSignal) => AsyncIterable<Buffer>;
}
