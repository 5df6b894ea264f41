/** Builds the audit entries, and the row changes, for the disk of a sandbox. Pure. */
import type { MountedWorkspace } from '../../../lib/protocol/disk-protocol.ts';
import type { AuditNote } from '../../audit/audit-chain.ts';
import type { SandboxRow, SandboxUpdate } from './sandbox-tables.ts';

type DiskColumns = Pick<SandboxRow, 'disk_name'>;

/** `mounted`: the disk as the VM got it; undefined if that is unknown. */
export function buildAttachedNotes(
  { disk_name: disk }: DiskColumns,
  mounted?: MountedWorkspace,
): AuditNote[] {
  if (disk === null) return [];
  const found = mounted === undefined ? {} : { version: mounted.version };
  const recovered = mounted?.is_recovered === true ? { recovered: true } : {};
  return [{ event: 'disk.attached', data: { disk, ...found, ...recovered } }];
}

/** `version`: the one with which a hibernated sandbox resumes. */
export function buildDetachedNotes({ disk_name: disk }: DiskColumns, version?: number): AuditNote[] {
  if (disk === null) return [];
  return [{ event: 'disk.detached', data: { disk, ...(version === undefined ? {} : { version }) } }];
}

/** Notes in the row whether an earlier holder of the disk was lost. */
export function buildMounted(mounted: MountedWorkspace | undefined): SandboxUpdate {
  if (mounted === undefined) return {};
  const { is_recovered: isRecovered, version, drained_at } = mounted;
  return {
    disk_recovered_version: isRecovered ? version : null,
    disk_recovered_at: isRecovered ? Date.parse(drained_at) : null,
  };
}
