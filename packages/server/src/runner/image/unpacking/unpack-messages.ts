/** What the runner and an unpacking process say to each other. It imports nothing that the process does not need. */
import type { TreeLimits } from '../layers/tree-budget.ts';

/** Descriptors of the process: commands and answers, the merged archive, and from {@link FIRST_LAYER} on the stored layers. */
export const CONTROL = 3;
export const MERGED = 4;
export const FIRST_LAYER = 5;

/** The largest answer in bytes, and the number of answers after which a process is taken for hostile. */
export const MAX_LINE_BYTES = 8192;
export const MAX_LINES = 100_000;
export const MAX_REASON = 2000;

/** The argument of the process. */
export interface UnpackStart {
  /** Directory of the files `0`, `1`, …, which exist: the archives of the layers, the lowest first. */
  directory: string;
  /** The largest size of each archive. */
  maxBytes: readonly number[];
  limits: TreeLimits;
}

/** The only command, after all archives are there: merge them. */
export const MERGE = 'merge\n';

/** The answers, one a line. */
export type UnpackLine =
  /** The digest of an archive that was written. */
  | { layer: number; digest: string }
  /** What is wrong with a layer. */
  | { layer: number; fault: string }
  /** What is wrong with the layers together. */
  | { fault: string }
  /** A fault of the process or its host. */
  | { error: string; code?: string | undefined }
  /** The bytes of all files in the image. */
  | { content_bytes: number }
  /** Bytes of files that were written since the last such line. */
  | { bytes: number }
  /** The merged archive is complete; so many entries had an access control list. */
  | { acls: number };

/** Cuts a reason to the size that the other side accepts. */
export function shorten(reason: string): string {
  return reason.slice(0, MAX_REASON);
}
