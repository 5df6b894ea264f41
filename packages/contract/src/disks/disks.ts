/** Wire forms of persistent disks and their snapshots. A GB of a disk is 2^30 bytes. */
import { z } from 'zod';
import { boundedInt, boundedIntText, Timestamp } from '../fields.ts';

/** Bytes of one GB: `df -h` in the guest then shows the size that was asked for. */
export const DISK_GB_BYTES = 2 ** 30;
/** The largest ext4 file system with blocks of 4 KiB. Organizations have lower limits. */
export const MAX_DISK_GB = 16_384;
export const MAX_DISK_NAME_LENGTH = 30;
const MAX_SNAPSHOT_NAME_LENGTH = 30;

const NAME = /^[a-z0-9][a-z0-9-]*$/u;
const NAME_RULE =
  'must be 1 to 30 lower-case letters, digits and hyphens, and begin with a letter or a digit';

const nameOf = (what: string, maxLength: number) =>
  z
    .string({ error: NAME_RULE })
    .max(maxLength, { error: NAME_RULE })
    .regex(NAME, { error: NAME_RULE })
    .describe(`Name of ${what}: at most ${maxLength} lower-case letters, digits and hyphens.`);

export const DiskName = nameOf('a disk, unique in the organization', MAX_DISK_NAME_LENGTH);
export const DiskSnapshotName = nameOf('a snapshot, unique for the disk', MAX_SNAPSHOT_NAME_LENGTH);

const SizeGb = boundedInt(1, MAX_DISK_GB, 'GB');

export const DISK_STATUSES = ['available', 'attached', 'detaching'] as const;
export type DiskStatus = (typeof DISK_STATUSES)[number];

const Durability = z
  .enum(['local'], { error: 'must be local; to wait for the object store, use POST /v1/disks/{disk}/flush' })
  .describe('When a flush in the sandbox is answered: when the data is on the disk of the host.');
export type DiskDurabilityName = z.infer<typeof Durability>;

/** Body of `POST /v1/disks`. */
export const CreateDiskRequest = z
  .strictObject({
    name: DiskName,
    size_gb: SizeGb.describe('Size in GB of 2^30 bytes.'),
    durability: Durability.default('local'),
  })
  .meta({ id: 'CreateDiskRequest' });
export type CreateDiskRequest = z.infer<typeof CreateDiskRequest>;

/** Body of `PATCH /v1/disks/{disk}`. */
export const PatchDiskRequest = z
  .strictObject({
    size_gb: SizeGb.optional().describe(
      'A disk can only grow. The file system of a running sandbox grows at once, without a restart.',
    ),
  })
  .meta({ id: 'PatchDiskRequest' });
export type PatchDiskRequest = z.infer<typeof PatchDiskRequest>;

/** Body of `POST /v1/disks/{disk}/snapshots`. */
export const CreateDiskSnapshotRequest = z
  .strictObject({
    name: DiskSnapshotName,
    sync: z
      .boolean({ error: 'must be true or false' })
      .default(false)
      .describe('First writes the file system of the attached sandbox out, as the command `sync` does.'),
  })
  .meta({ id: 'CreateDiskSnapshotRequest' });
export type CreateDiskSnapshotRequest = z.infer<typeof CreateDiskSnapshotRequest>;

/** Body of `POST /v1/disks/{disk}/fork`. */
export const ForkDiskRequest = z
  .strictObject({ snapshot: DiskSnapshotName, name: DiskName })
  .meta({ id: 'ForkDiskRequest' });
export type ForkDiskRequest = z.infer<typeof ForkDiskRequest>;

/** The part of a disk's state that tells how much of it is in the object store. */
const DRAIN_FIELDS = {
  drained_version: z.int().describe('Number of the newest version in the object store.'),
  dirty_bytes: z
    .int()
    .describe('Bytes that are only on the host so far: they would be lost together with the host.'),
  drained_at: Timestamp.describe('When the newest version was stored.'),
  waits_for: z
    .string()
    .nullable()
    .describe('Why storing does not proceed; null while it does, or if nothing is left to store.'),
};

export const DiskRecord = z
  .object({
    name: z.string(),
    team_id: z.string().describe('The team that owns the disk: that of the key that created it.'),
    status: z
      .enum(DISK_STATUSES)
      .describe(
        '`available`: a sandbox can attach it. `attached`: the sandbox `attached_to` has it. `detaching`: that sandbox has ' +
          'ended or is hibernated, and what it wrote is still being stored.',
      ),
    size_gb: z.int().describe('In GB of 2^30 bytes.'),
    stored_bytes: z
      .int()
      .describe(
        'Bytes in the object store that only this disk and its snapshots use, as billed; measured every hour.',
      ),
    attached_to: z.string().nullable().describe('Id of the sandbox that has the disk.'),
    parent: z.string().nullable().describe('Name of the disk from which this one was forked.'),
    durability: Durability,
    ...DRAIN_FIELDS,
    created_at: Timestamp,
  })
  .meta({ id: 'Disk' });
export type DiskRecord = z.infer<typeof DiskRecord>;

export const DiskSnapshotRecord = z
  .object({
    name: z.string(),
    disk: z.string().describe('Name of the disk.'),
    size_gb: z.int().describe('Size of the disk at that moment.'),
    version: z.int().describe('Number of the version that the snapshot keeps.'),
    created_at: Timestamp,
  })
  .meta({ id: 'DiskSnapshot' });
export type DiskSnapshotRecord = z.infer<typeof DiskSnapshotRecord>;

/** The disk of a sandbox, in the sandbox's record. */
export const SandboxDisk = z
  .object({
    name: z.string(),
    status: z
      .enum(['attached', 'detaching', 'detached'])
      .describe(
        '`detaching`: the sandbox has ended or is hibernated, and what it wrote is still being stored. `detached`: the disk ' +
          'is free for other sandboxes.',
      ),
    dirty_bytes: z
      .int()
      .nullable()
      .describe('While `detaching`: bytes that are still to be stored, if known.'),
    waits_for: z.string().nullable().describe('While `detaching`: why storing does not proceed.'),
    recovered: z
      .object({
        version: z.int(),
        drained_at: Timestamp.describe('When this version was stored: later writes were lost.'),
      })
      .nullable()
      .describe(
        'Set if the sandbox that had the disk before was lost with writes that were not stored: the version from which this ' +
          'sandbox continued.',
      ),
  })
  .meta({ id: 'SandboxDisk' });
export type SandboxDisk = z.infer<typeof SandboxDisk>;

const PAGE = { limit: boundedIntText(1, 500, 100), cursor: z.string().max(256).optional() };

/** Query of `GET /v1/disks` and of `GET /v1/disks/{disk}/snapshots`. */
export const ListDisksQuery = z.strictObject(PAGE);
export type ListDisksQuery = z.infer<typeof ListDisksQuery>;

export const DISK_FORMATS = ['raw', 'qcow2'] as const;
const DiskFormatName = z.enum(DISK_FORMATS, { error: `must be ${DISK_FORMATS.join(' or ')}` }).default('raw');

/** Query of `PUT /v1/disks/{disk}/content`. */
export const ImportDiskQuery = z.strictObject({
  format: DiskFormatName.describe('Format of the body. Default: raw.'),
});
/** Query of `GET /v1/disks/{disk}/content`. */
export const ExportDiskQuery = z.strictObject({
  format: DiskFormatName.describe('Format of the answer. Default: raw.'),
  snapshot: DiskSnapshotName.optional().describe('Default: the newest version in the object store.'),
});

/** Query of `POST /v1/runs/{id}/resume`. */
export const ResumeQuery = z.strictObject({
  disk: z
    .literal('fresh', { error: 'must be fresh' })
    .optional()
    .describe(
      'With `fresh`, the disk is mounted anew, as it is now: files that programs of the sandbox have open on it are lost. ' +
        'For a sandbox whose disk has changed since the hibernation.',
    ),
});
export type ResumeQuery = z.infer<typeof ResumeQuery>;
