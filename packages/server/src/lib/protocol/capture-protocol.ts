/** Messages about captures in the object store: docs/reference/runner-protocol.md. */
import { z } from 'zod';

/** The organization that a capture belongs to: its objects are in the organization's part of the store. */
export const CaptureOwner = z.strictObject({ organization: z.string().min(1).max(128) });
export type CaptureOwner = z.infer<typeof CaptureOwner>;

/** Owner of the images of registries in the object store, which all organizations share. No organization has this id. */
export const EVERYONE = 'prepared';

/** Query of `DELETE /captures/{id}`. */
export const RemoveCapture = CaptureOwner.partial();

/** Answer of `GET /captures/{id}/objects`. */
export const CaptureObjectsState = z.object({
  /** Whether this runner has the files. */
  local: z.boolean(),
  /** Whether the object store has all of it. */
  stored: z.boolean(),
  /** Bytes of its chunks, of which other captures may name some; 0 unless stored. */
  stored_bytes: z.int().nonnegative(),
  /** Whether this runner is storing it or fetching it. */
  transfer: z.enum(['none', 'storing', 'fetching']),
});
export type CaptureObjectsState = z.infer<typeof CaptureObjectsState>;

/** Answer of `PUT /captures/{id}/objects`. */
export const StoredCapture = z.object({
  stored_bytes: z.int().nonnegative(),
  /** Bytes that the store did not have. */
  sent_bytes: z.int().nonnegative(),
});
export type StoredCapture = z.infer<typeof StoredCapture>;

/** Answer of `POST /collect-captures`. `unused`: chunks that a later request may delete. */
export const CollectedCaptures = z.object({
  deleted_objects: z.int(),
  deleted_bytes: z.int(),
  unused: z.int(),
});
export type CollectedCaptures = z.infer<typeof CollectedCaptures>;
