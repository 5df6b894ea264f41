/** Answers of the block server (blocks/internal/serve). */
import { z } from 'zod';

/** A manifest of a disk's chain. */
export const DiskManifest = z.object({
  version: z.int().positive(),
  kind: z.string(),
  /** Name of the map: equal roots are equal content. */
  root: z.string(),
  size_bytes: z.int().positive(),
  epoch: z.int().nonnegative(),
  /** Id of the runner that holds the disk; empty if none does. */
  runner: z.string(),
  time_ms: z.int(),
  /** When the content was written. */
  drained_ms: z.int(),
});
export type DiskManifest = z.infer<typeof DiskManifest>;

/** `recovered`: an earlier holder, that of `previous`, did not release the disk. */
export const TakenDisk = DiskManifest.extend({
  recovered: z.boolean(),
  previous: z.object({ runner: z.string() }),
});

export const LoadedVersion = z.object({
  export: z.string(),
  size_bytes: z.int().positive(),
  root: z.string(),
});

export const DrainedOverlay = DiskManifest.extend({
  repeated: z.boolean(),
  changed_bytes: z.int(),
  frame_bytes: z.int(),
  map_bytes: z.int(),
  duration_ms: z.int(),
});

/** Names of segments that a compaction can free. */
export const SparseSegments = z.object({ segments: z.array(z.string()).max(64) });

/** `repeated`: there was nothing to move, and the version is that of before. */
export const CompactedDisk = DiskManifest.extend({ repeated: z.boolean() });

export const ServerStatus = z.object({
  reads: z.int(),
  /** Age of the oldest read in progress; 0 without one. */
  oldest_read_ms: z.int(),
  /** Time since a request to the object store last succeeded, and last failed; null before the first. */
  store_ok_ms: z.int().nullable(),
  store_error_ms: z.int().nullable(),
  store_error: z.string(),
});

export const Nothing = z.unknown();
