/**
 * Builds the row changes for a hibernation and for a resume. Pure.
 *
 *     running ── hibernation_id = hib… ─► the runner saves ─► hibernated ─► the runner restores ─► running, id removed
 *                        │ killed: is the VM there, or is the capture?          │ killed: is the VM there?
 *
 * The id is in the record before control sends the request to the runner, so that control can distinguish a
 * hibernated VM from a lost one.
 */
import type { MountedWorkspace } from '../../../lib/protocol/disk-protocol.ts';
import type { CaptureInfo } from '../../../lib/protocol/runner-protocol.ts';
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { AuditNote } from '../../audit/audit-chain.ts';
import type { SandboxRow, SandboxUpdate } from './sandbox-tables.ts';
import { findAgeMs, findHibernatedMs, findUnseenMs, findBilledMs } from '../../time/lifetime.ts';
import { buildAttachedNotes, buildDetachedNotes } from './disk-notes.ts';
import { NO_ROLLBACK } from './rollback.ts';
import { changeState } from './state-change.ts';
import { addUsage } from './usage.ts';

const HIBERNATED: AuditNote = { event: 'sandbox.hibernated', data: {} };
const RESUMED: AuditNote = { event: 'sandbox.resumed', data: {} };

/** Builds the audit entries of a hibernation. */
export function buildHibernatedNotes(row: SandboxRow, { workspace }: CaptureInfo): AuditNote[] {
  return [...buildDetachedNotes(row, workspace?.version), HIBERNATED];
}

/** Builds the audit entries of a resume. */
export function buildResumedNotes(row: SandboxRow, mounted?: MountedWorkspace): AuditNote[] {
  return [RESUMED, ...buildAttachedNotes(row, mounted)];
}

/**
 * Builds the change for a sandbox that the runner has saved. The capture names the time, but it is never before the VM
 * was last seen running. It may be long ago, if the answer was lost or the database was down when the answer came.
 */
export function buildHibernated(row: SandboxRow, capture: CaptureInfo, now: HostMoment): SandboxUpdate {
  const agoMs = Math.min(findSavedAgoMs(capture, now), findUnseenMs(row, now));
  return {
    ...changeState(row.status, 'saved'),
    // A hibernated sandbox has no VM that could still be rolled back.
    ...NO_ROLLBACK,
    hibernation_id: capture.id,
    disk_version: capture.workspace?.version ?? null,
    hibernated_at: Math.round(now.wallMs - agoMs),
    billed_ms: findBilledMs(row, findAgeMs(row, now) - agoMs),
    ...addUsage(row, capture.usage),
  };
}

function findSavedAgoMs({ created_at, created_on_boot: onBoot }: CaptureInfo, now: HostMoment): number {
  const agoMs = onBoot?.boot_id === now.bootId ? now.bootMs - onBoot.ms : now.wallMs - Date.parse(created_at);
  return Math.max(0, agoMs);
}

/**
 * Builds the change for a VM that runs again. After a reboot of the host, the age continues by the new boot's clock.
 */
export function buildResumed(row: SandboxRow, now: HostMoment): SandboxUpdate {
  const isSameBoot = row.boot_id === now.bootId;
  return {
    ...changeState(row.status, 'started'),
    hibernation_id: null,
    is_resuming: false,
    hibernated_at: null,
    disk_version: null,
    hibernated_ms: findHibernatedMs(row, now),
    last_active_at: now.wallMs,
    last_seen_at: now.wallMs,
    last_seen_boot_ms: now.bootMs,
    ...(isSameBoot ? {} : { boot_id: now.bootId, created_boot_ms: now.bootMs - findAgeMs(row, now) }),
  };
}
