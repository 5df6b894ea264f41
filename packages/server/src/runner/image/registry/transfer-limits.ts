/** Limits of transfers from registries, which are untrusted: durations of each step, and sizes. */
export interface TransferLimits {
  connectTimeoutMs: number;
  /** From the request to the head of its answer. */
  headTimeoutMs: number;
  /** In each interval of this length a body must bring `minProgressBytes`, or end. */
  progressTimeoutMs: number;
  minProgressBytes: number;
  maxRedirects: number;
  maxTokenBytes: number;
  /** Number of times that the download of a blob is started or resumed. */
  maxBlobTries: number;
  maxManifestTries: number;
  firstBackOffMs: number;
  /** A request fails when the registry asks for a longer pause. */
  maxRetryAfterMs: number;
  maxConcurrentBlobs: number;
}

export const DEFAULT_TRANSFER_LIMITS: TransferLimits = {
  connectTimeoutMs: 10_000,
  headTimeoutMs: 30_000,
  progressTimeoutMs: 30_000,
  minProgressBytes: 64 * 1024,
  maxRedirects: 5,
  maxTokenBytes: 64 * 1024,
  maxBlobTries: 5,
  maxManifestTries: 3,
  firstBackOffMs: 250,
  maxRetryAfterMs: 5_000,
  maxConcurrentBlobs: 3,
};
