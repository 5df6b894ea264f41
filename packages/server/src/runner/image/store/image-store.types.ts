/** The types of images for the rest of the runner. */
import type { ImageReference } from '@coppice/contract';
import type { ImageAccess } from '../../../lib/protocol/runner-protocol.ts';
import type { CacheLease } from '../../cache/cache-leases.ts';
import type { NewReference } from './stored-images.ts';

export interface ImageConfig {
  /** The image's ENV; later entries win. */
  env: Readonly<Record<string, string>>;
  /** USER, empty for root. */
  user: string;
  /** WORKDIR, empty when the image has none. */
  workdir: string;
}

export interface StoredImage {
  /** `docker.io/library/node:22-slim@sha256:…` */
  reference: string;
  /** Digest of the image manifest for this machine's platform, `sha256:…`. */
  digest: string;
  /** Read-only squashfs file, mode 0444, owned by root. Never changes once it exists. */
  path: string;
  sizeBytes: number;
  config: ImageConfig;
  preparedAt: Date;
}

/** An image that is being pulled or flattened now. */
export interface PreparingImage {
  reference: string;
  digest: string;
  step: PrepareStep;
  startedAt: Date;
}

export type PrepareStep = 'resolve' | 'pull' | 'flatten';

export interface PrepareProgress {
  step: 'pull' | 'flatten';
  doneBytes: number;
  /** In `pull` the size of the layers as stored, in `flatten` the size of the files. */
  totalBytes: number;
}

export interface PrepareOptions {
  /** The access that the registry checks; anonymous by default. */
  access?: ImageAccess;
  /** Opaque key of the caller's organization; organizations get queue slots round-robin. */
  organization?: string;
  /** Holds the image from before its look-up; without a lease it may be evicted as soon as `prepare` returns. */
  lease?: CacheLease;
  /** Called when a step begins; a caller that joins a preparation first gets its current step. Must not throw. */
  onStep?: (step: PrepareStep) => void;
  /** Called a few times a second at most. Must not throw. */
  onProgress?: (progress: PrepareProgress) => void;
  /** Ends the wait of this caller. The preparation continues, for other callers and later ones. */
  signal?: AbortSignal;
}

/** An image that a registry has let a caller have, and that need not be pulled if another runner has stored it. */
export interface WantedPull {
  reference: ImageReference;
  digest: string;
  /** The reference under which it is stored here. */
  name: NewReference;
  /** Called when a stored one begins to be fetched. */
  onFound: () => void;
}
