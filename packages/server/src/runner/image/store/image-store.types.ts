import type { CacheLease } from '../../cache/cache-leases.ts';

/** What the rest of the runner knows of images. */
import type { ImageAccess } from '../../../lib/protocol/runner-protocol.ts';

export interface ImageConfig {
  /** The image's ENV, later entries winning. */
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
  /** In `pull` of the layers as they are stored, in `flatten` of the files. */
  totalBytes: number;
}

export interface PrepareOptions {
  /** Whose right to the image the registry is asked for; an anonymous caller's by default. */
  access?: ImageAccess;
  /** Who asks; not looked into. Each gets a turn before another gets a second one. */
  organization?: string;
  /** Holds the image from before it is looked for: without one it may be evicted as soon as the answer is given. */
  lease?: CacheLease;
  /** Called when a step begins; joining a preparation under way begins with its current step. Must not throw. */
  onStep?: (step: PrepareStep) => void;
  /** Called a few times a second at most. Must not throw. */
  onProgress?: (progress: PrepareProgress) => void;
  /** Ends the waiting of this caller. The preparation goes on, for others and for the next time. */
  signal?: AbortSignal;
}
