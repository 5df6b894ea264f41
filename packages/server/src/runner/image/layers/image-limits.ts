/** Images come from strangers: everything about them is bounded. */
export interface ImageLimits {
  maxLayers: number;
  maxManifestBytes: number;
  maxConfigBytes: number;
  /** Of the layers as stored in the registry. */
  maxCompressedBytes: number;
  /** Of the layers unpacked, and of the image made of them. */
  maxContentBytes: number;
  /** Unpacked bytes for each stored one beyond the first {@link freeExpansionBytes}: what people make packs by 2 to 20. */
  maxExpansion: number;
  freeExpansionBytes: number;
  maxEntries: number;
  /** Names, link targets and extended attributes: what is held in memory while layers are merged. */
  maxMetadataBytes: number;
  /** What the host's file system keeps free. */
  minFreeBytes: number;
  resolveTimeoutMs: number;
  pullTimeoutMs: number;
  flattenTimeoutMs: number;
  /** How long an answer of a registry for a tag is taken for true. */
  tagTtlMs: number;
  /** How long an answer to credentials lets their owner use a stored image while the registry is down. */
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

/** What layers of this size as stored may unpack to. A file of a gigabyte of zeros is not yet an attack. */
export function maxUnpackedBytes(storedBytes: number, limits: ImageLimits): number {
  const { maxContentBytes, maxExpansion, freeExpansionBytes } = limits;
  return Math.min(maxContentBytes, freeExpansionBytes + maxExpansion * storedBytes);
}
