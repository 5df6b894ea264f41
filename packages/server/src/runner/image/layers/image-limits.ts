/** Limits of images, which come from untrusted parties: everything about them is bounded. */
export interface ImageLimits {
  maxLayers: number;
  maxManifestBytes: number;
  maxConfigBytes: number;
  /** Total of the layers as stored in the registry. */
  maxCompressedBytes: number;
  /** Total of the unpacked layers, and of the image made from them. */
  maxContentBytes: number;
  /**
   * Unpacked bytes allowed for each stored byte, beyond {@link freeExpansionBytes}; real images expand 2 to 20 times.
   */
  maxExpansion: number;
  freeExpansionBytes: number;
  maxEntries: number;
  /** Bytes of names, link targets and extended attributes, which are held in memory while layers are merged. */
  maxMetadataBytes: number;
  /** Bytes that must stay free on the host's file system. */
  minFreeBytes: number;
  resolveTimeoutMs: number;
  pullTimeoutMs: number;
  flattenTimeoutMs: number;
  /** How long the resolver reuses a registry's answer for a tag. */
  tagTtlMs: number;
  /** How long a registry's answer to credentials lets their owner use a stored image while the registry is down. */
  staleAccessTtlMs: number;
  maxConcurrentPreparations: number;
  maxWaitingPreparations: number;
}

const MIB = 1024 ** 2;
const GIB = 1024 ** 3;

export const DEFAULT_IMAGE_LIMITS: ImageLimits = {
  maxLayers: 256,
  maxManifestBytes: 4 * MIB,
  maxConfigBytes: 4 * MIB,
  maxCompressedBytes: 16 * GIB,
  maxContentBytes: 32 * GIB,
  maxExpansion: 100,
  freeExpansionBytes: GIB,
  maxEntries: 1_000_000,
  maxMetadataBytes: 256 * MIB,
  minFreeBytes: 2 * GIB,
  resolveTimeoutMs: 30_000,
  pullTimeoutMs: 15 * 60_000,
  flattenTimeoutMs: 15 * 60_000,
  tagTtlMs: 60_000,
  staleAccessTtlMs: 24 * 60 * 60_000,
  maxConcurrentPreparations: 2,
  maxWaitingPreparations: 64,
};

/** The bytes that layers of this stored size may unpack to. A file of a gigabyte of zeros is not yet an attack. */
export function maxUnpackedBytes(storedBytes: number, limits: ImageLimits): number {
  const { maxContentBytes, maxExpansion, freeExpansionBytes } = limits;
  return Math.min(maxContentBytes, freeExpansionBytes + maxExpansion * storedBytes);
}
