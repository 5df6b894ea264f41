/** Wire forms of snapshots. */
import { z } from 'zod';
import { boundedInt, boundedIntText, boundedText, Moment, Timestamp } from '../fields.ts';

const MAX_NAME_BYTES = 128;
/** Ten years. */
const MAX_EXPIRES_IN_S = 10 * 365 * 86_400;
/** The latest expiry that can be set. */
export const MAX_SNAPSHOT_AHEAD_MS = MAX_EXPIRES_IN_S * 1000;

const Name = boundedText(1, MAX_NAME_BYTES);
const ExpiresAt = Moment.describe('When the snapshot is deleted: in the future, at most ten years ahead.');

/** Body of `POST /v1/runs/{id}/snapshot`. */
export const CreateSnapshotRequest = z
  .strictObject({
    name: Name.optional().describe('Free text for people; need not be unique.'),
    expires_in: boundedInt(1, MAX_EXPIRES_IN_S, 'seconds')
      .optional()
      .describe('Seconds after which the snapshot is deleted; excludes expires_at. Default: never.'),
    expires_at: ExpiresAt.optional(),
  })
  .refine((body) => body.expires_in === undefined || body.expires_at === undefined, {
    path: ['expires_at'],
    error: 'cannot be combined with expires_in; give one of them',
  })
  .meta({ id: 'CreateSnapshotRequest' });
export type CreateSnapshotRequest = z.infer<typeof CreateSnapshotRequest>;

/** Body of `PATCH /v1/snapshots/{id}`. Fields that are left out keep their values. */
export const PatchSnapshotRequest = z
  .strictObject({
    name: Name.nullable().optional().describe('As in a create; null for none.'),
    expires_at: ExpiresAt.nullable().optional(),
  })
  .meta({ id: 'PatchSnapshotRequest' });
export type PatchSnapshotRequest = z.infer<typeof PatchSnapshotRequest>;

/** Body of `POST /v1/runs/{id}/rollback`. */
export const RollbackRequest = z
  .strictObject({ snapshot_id: boundedText(1, 64) })
  .meta({ id: 'RollbackRequest' });
export type RollbackRequest = z.infer<typeof RollbackRequest>;

export const SnapshotRecord = z
  .object({
    id: z.string().meta({ example: 'snap0123456789abcdef0123' }),
    run_id: z.string().describe('The sandbox of which the snapshot was taken.'),
    name: z.string().nullable(),
    image: z.string(),
    vcpus: z.int(),
    mem_mib: z.int(),
    disk_mib: z.int(),
    disk: z
      .object({ name: z.string(), version: z.int(), size_gb: z.int() })
      .nullable()
      .describe('The disk at `/workspace`, and the version of it that the snapshot keeps; null without one.'),
    size_bytes: z
      .int()
      .describe('Size on disk, including data that it shares with other snapshots or with sandboxes.'),
    bound_to: z
      .record(z.string(), z.string())
      .describe('What a machine needs to restore the snapshot: for example versions of QEMU and the kernel.'),
    created_at: Timestamp,
    expires_at: Timestamp.nullable().describe('When the snapshot is deleted; null for never.'),
  })
  .meta({ id: 'Snapshot' });
export type SnapshotRecord = z.infer<typeof SnapshotRecord>;

/** Query of `GET /v1/snapshots`. */
export const ListSnapshotsQuery = z.strictObject({
  limit: boundedIntText(1, 500, 100),
  cursor: z.string().max(256).optional(),
  run_id: z.string().max(64).optional().describe('Only snapshots of this sandbox.'),
});
export type ListSnapshotsQuery = z.infer<typeof ListSnapshotsQuery>;
