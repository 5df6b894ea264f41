/**
 * Persistent disks between control and runner; see docs/reference/runner-protocol.md. Control knows disks by name and who
 * may use them; the runner knows them by organization and id, and keeps their data in the object store.
 *
 *   PUT    /disks/{org}/{disk}                        NewDisk        DiskState   creates a formatted disk; repeatable
 *   GET    /disks/{org}/{disk}                                       DiskState
 *   DELETE /disks/{org}/{disk}                                       {}          409 disk_has_forks, disk_in_use
 *   GET    /disks/{org}/{disk}/stored                                StoredDisk
 *   POST   /disks/{org}/{disk}/snapshots              TakeSnapshot   DiskVersion repeatable
 *   DELETE /disks/{org}/{disk}/snapshots/{version}                   {}
 *   POST   /disks/{org}/{disk}/fork                   ForkDisk       DiskState   of the new disk; repeatable
 *   POST   /disks/{org}/{disk}/flush                                 DiskState   waits until all is in the object store
 *   POST   /disks/{org}/{disk}/grow                   GrowDisk       DiskState
 *   POST   /disks/{org}/{disk}/import?{ImportDisk}    an image       DiskState   makes the disk from the body
 *   GET    /disks/{org}/{disk}/export?{ExportDisk}                   an image
 *   POST   /disks/{org}/collect                                      CollectedDisks
 */
import { z } from 'zod';

/** Id of a disk: chosen by control, and never used again. */
export const DiskId = z.string().regex(/^disk[0-9a-f]{20}$/u);

/** When a flush of the guest is answered: when the data is on the host's disk, or in the object store. */
export const DiskDurability = z.enum(['local', 'object']);
export type DiskDurability = z.infer<typeof DiskDurability>;

export const DiskFormat = z.enum(['raw', 'qcow2']);
export type DiskFormat = z.infer<typeof DiskFormat>;

const SizeBytes = z.int().positive();
/** Number of a version in the chain of a disk. */
const Version = z.int().positive();

export const NewDisk = z.strictObject({ size_bytes: SizeBytes });
/** `snapshot` identifies the snapshot. With `sync` the file system is written out first. */
export const TakeSnapshot = z.strictObject({
  snapshot: z.string().regex(/^dsnap[0-9a-f]{20}$/u),
  sync: z.boolean().default(false),
});
export type TakeSnapshot = z.infer<typeof TakeSnapshot>;
export const ForkDisk = z.strictObject({ version: Version, to: DiskId });
export type ForkDisk = z.infer<typeof ForkDisk>;
export const GrowDisk = z.strictObject({ size_bytes: SizeBytes });

/** Query: `max_bytes` limits the size of the disk. Throws `payload_too_large` beyond it. */
export const ImportDisk = z.strictObject({
  format: DiskFormat,
  max_bytes: z.coerce.number().pipe(SizeBytes),
});
export type ImportDisk = z.infer<typeof ImportDisk>;
/** Query. Default of `version`: the newest one in the object store. */
export const ExportDisk = z.strictObject({
  format: DiskFormat,
  version: z.coerce.number().pipe(Version).optional(),
});
export type ExportDisk = z.infer<typeof ExportDisk>;

export const DiskVersion = z.object({
  version: Version,
  size_bytes: SizeBytes,
  created_at: z.iso.datetime(),
});
export type DiskVersion = z.infer<typeof DiskVersion>;

/** A disk that this runner holds. */
export const DiskAttachment = z.object({
  vm_id: z.string(),
  /** `detaching`: the VM is gone, and what it wrote is not yet in the object store. */
  state: z.enum(['attaching', 'attached', 'detaching']),
  /** Bytes on this host that are not in the object store. */
  dirty_bytes: z.int().nonnegative(),
  drained_version: Version,
  drained_at: z.iso.datetime(),
  /** Why draining does not proceed; null while it does. */
  waits_for: z.string().nullable(),
});
export type DiskAttachment = z.infer<typeof DiskAttachment>;

export const DiskState = z.object({
  disk: DiskId,
  /** The newest version in the object store. */
  version: Version,
  size_bytes: SizeBytes,
  drained_at: z.iso.datetime(),
  /** Null unless this runner holds the disk. */
  attachment: DiskAttachment.nullable(),
  /** Whether another service that shares the object store holds the disk. */
  is_held_elsewhere: z.boolean(),
});
export type DiskState = z.infer<typeof DiskState>;

/** Bytes in the object store that only this disk and its snapshots refer to. */
export const StoredDisk = z.object({ stored_bytes: z.int().nonnegative() });
export type StoredDisk = z.infer<typeof StoredDisk>;

export const CollectedDisks = z.object({ deleted_objects: z.int(), deleted_bytes: z.int() });

/** The disk at `/workspace` of a VM that is created, restored or rolled back. */
export const VmWorkspace = z.strictObject({
  organization: z.string().min(1).max(128),
  disk: DiskId,
  durability: DiskDurability.default('local'),
  /**
   * For a VM that continues from a capture: its guest has mounted this version, and none has been written since. Throws
   * `disk_changed` otherwise. Absent: the disk is mounted anew.
   */
  version: Version.optional(),
});
export type VmWorkspace = z.infer<typeof VmWorkspace>;

/** The disk as a VM got it. */
export const MountedWorkspace = z.object({
  disk: DiskId,
  /** The version that it continues from, and when that was written. */
  version: Version,
  drained_at: z.iso.datetime(),
  /** Whether an earlier holder was lost, with what it had not yet drained. */
  is_recovered: z.boolean(),
});
export type MountedWorkspace = z.infer<typeof MountedWorkspace>;

/** The disk of a captured VM, of the same moment. The version is kept until the capture's owner removes it. */
export const CapturedWorkspace = z.object({
  organization: z.string(),
  disk: DiskId,
  version: Version,
  size_bytes: SizeBytes,
});
export type CapturedWorkspace = z.infer<typeof CapturedWorkspace>;
