import type { Generated } from 'kysely';

/**
 * Captures and built images that have objects in the object store, or may have. A row exists before the first object, and until the objects
 * that only this capture needed are collected: it refers to no snapshot, sandbox or name, and outlives them.
 */
export interface CaptureObjectTable {
  /** Id of a capture, or the digest of an image. */
  capture_id: string;
  organization_id: string;
  /** The runner that stores it. */
  runner_id: string;
  created_at: number;
  /** Since when any runner can fetch it; null while it is only at its runner. */
  stored_at: Generated<number | null>;
  /** Bytes of its chunks; other captures may name some of them. */
  stored_bytes: Generated<number>;
  /** When it was deleted from the store; its chunks are being collected. */
  removed_at: Generated<number | null>;
}
