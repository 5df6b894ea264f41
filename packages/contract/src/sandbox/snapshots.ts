/** Wire forms of snapshots. */
import { z } from 'zod';
import { boundedIntText, boundedText, Timestamp } from '../fields.ts';

const MAX_NAME_BYTES = 128;

/** Body of `POST /v1/runs/{id}/snapshot`. */
export const CreateSnapshotRequest = z
  .strictObject({
    name: boundedText(1, MAX_NAME_BYTES).optional().describe('Free text for people; need not be unique.'),
  })
  .meta({ id: 'CreateSnapshotRequest' });
export type CreateSnapshotRequest = z.infer<typeof CreateSnapshotRequest>;

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
