import type { S3Client } from '@aws-sdk/client-s3';
import type { S3Requests } from './s3-requests.ts';

/** The parts that every request to the bucket needs. */
export interface S3Bucket {
  client: S3Client;
  bucket: string;
  requests: S3Requests;
}

/** Name of an object in the bucket, with what is written to it. */
export interface S3Write {
  name: string;
  /**
   * Random, and stored with the object: it tells the writer whether an existing object is its own, when the answer to an
   * earlier attempt was lost.
   */
  id: string;
  /** Write only if the name does not exist (`If-None-Match: *`). */
  isCreateOnly: boolean;
}

/** `unknown`: the server has forgotten the upload, so an earlier attempt may have completed it. */
export type WriteOutcome = 'written' | 'exists' | 'unknown';

export const ID_METADATA = 'coppice-write-id';
export const PRECONDITION_FAILED = 412;
