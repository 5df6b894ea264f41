/** Registries are strangers: how long each of their steps may take, and how much they may say. */
export interface TransferLimits {
  connectTimeoutMs: number;
  /** From the request to the head of its answer. */
  headTimeoutMs: number;
  /** In each such time a body must bring `minProgressBytes`, or its end. */
  progressTimeoutMs: number;
  minProgressBytes: number;
  maxRedirects: number;
  maxTokenBytes: number;
  /** How often a blob is begun or taken up again. */
  maxBlobTries: number;
  maxManifestTries: number;
  firstBackOffMs: number;
  /** A registry that asks for a longer pause is given up on. */
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
