/** The protocol between the runner and an unpacking process. This file imports nothing that the process does not need. */
import type { TreeLimits } from '../layers/tree-budget.ts';

/** Descriptors of the process: commands and answers, the merged archive, and from {@link FIRST_LAYER} on the stored layers. */
export const CONTROL = 3;
export const MERGED = 4;
export const FIRST_LAYER = 5;

/** The largest answer in bytes. */
export const MAX_LINE_BYTES = 8192;
/** Time between two reports of progress. */
export const PROGRESS_INTERVAL_MS = 250;
export const MAX_REASON = 2000;

/** The argument of the process. */
export interface UnpackStart {
  /** Paths of the archives of the layers, the lowest first. The files exist. */
  paths: readonly string[];
  /** The largest size of each archive. */
  maxBytes: readonly number[];
  limits: TreeLimits;
}

/** The only command, after all archives are there: merge them. */
export const MERGE = 'merge\n';

/** The answers, one a line. */
export type UnpackLine =
  /** An archive was written, with this digest. */
  | { layer: number; digest: string }
  /** A layer is damaged or breaks a limit. */
  | { layer: number; fault: string }
  /** The layers together break a limit. */
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
  return reason.slice(0, MAX_REASON).toWellFormed();
}
