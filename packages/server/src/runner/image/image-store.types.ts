/** What the rest of the runner knows of images. */
export interface ImageConfig {
  /** The image's ENV, in order, later entries winning. */
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

export type PrepareStep = 'resolve' | 'pull' | 'flatten';

export interface PrepareOptions {
  onStep?: (step: PrepareStep) => void;
  signal?: AbortSignal;
}
