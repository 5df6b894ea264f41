/** Frees space of an attached disk: what is left of mostly unused segments moves, and the collector deletes them. */
import { CompactedDisk, SparseSegments, type DiskManifest } from './block-requests.ts';
import type { DiskServer } from './disk-moments.ts';

/** The search reads the maps of the disk, and of disks that share data with it. */
const SEARCH_TIMEOUT_MS = 2 * 60_000;

/** `later`: the disk is not in a state to be compacted. */
export type CompactionOutcome = 'moved' | 'nothing' | 'later';

/** Finds segments of which little is used, and that nothing but the head of the disk uses. */
export async function findSparse(ask: DiskServer): Promise<readonly string[]> {
  const { segments } = await ask({ op: 'sparse' }, SparseSegments, { timeoutMs: SEARCH_TIMEOUT_MS });
  return segments;
}

/** Makes a version with the same content that does not use them. Returns undefined if the head does not either. */
export async function moveOut(
  ask: DiskServer,
  segments: readonly string[],
): Promise<DiskManifest | undefined> {
  const compacted = await ask({ op: 'compact', segments: segments.join(',') }, CompactedDisk);
  return compacted.repeated ? undefined : compacted;
}
