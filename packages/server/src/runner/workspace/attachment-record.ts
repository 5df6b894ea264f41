/** The record of an attached disk, in the directory of its overlays' parent. A starting runner reads it. */
import { join } from 'node:path';
import { z } from 'zod';
import { findFile } from '../../lib/files/find-file.ts';
import { writeDurably, writeDurablyLater } from '../../lib/files/durable-file.ts';
import { DiskDurability, DiskId } from '../../lib/protocol/disk-protocol.ts';

export const AttachmentRecord = z.object({
  format: z.literal(1),
  organization: z.string(),
  disk: DiskId,
  vm_id: z.string(),
  /** User id of the VM, which owns new overlays. */
  uid: z.int(),
  epoch: z.int().positive(),
  size_bytes: z.int().positive(),
  /** The version that the lowest overlay is on, and when it was written. */
  version: z.int().positive(),
  drained_at: z.iso.datetime(),
  durability: DiskDurability,
  /** The disk is first rolled back to that version; nothing of it is drained before. */
  revert_to: z.int().positive().optional(),
  /** VM instance whose attachment ends, undrained, when this one's VM has the sandbox. */
  replaces: z.string().optional(),
});
export type AttachmentRecord = z.infer<typeof AttachmentRecord>;

const FILE_NAME = 'disk.json';

export function writeAttachmentRecord(directory: string, record: AttachmentRecord): void {
  writeDurably(join(directory, FILE_NAME), JSON.stringify(record));
}

/** As {@link writeAttachmentRecord}, on another thread. */
export function writeAttachmentRecordLater(directory: string, record: AttachmentRecord): Promise<void> {
  return writeDurablyLater(join(directory, FILE_NAME), JSON.stringify(record));
}

/** Returns undefined if there is none: then the overlays never were part of a disk. Throws if it cannot be read. */
export function findAttachmentRecord(directory: string): AttachmentRecord | undefined {
  const content = findFile(join(directory, FILE_NAME));
  return content === undefined ? undefined : AttachmentRecord.parse(JSON.parse(content.toString('utf8')));
}
