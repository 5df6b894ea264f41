/**
 * What is written when a sandbox is hibernated and when it is resumed. Pure.
 *
 *     running ── hibernation_id = hib… ─► the runner saves ─► hibernated ─► the runner restores ─► running, id forgotten
 *                        │ killed: is the VM there, or is the capture?          │ killed: is the VM there?
 *
 * The id is in the record before the runner is asked, so that a VM that is gone is known from one that was lost.
 */
import type { CaptureInfo } from '../../../lib/protocol/runner-protocol.ts';
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { AuditNote } from '../../audit/audit-chain.ts';
import type { SandboxRow, SandboxUpdate } from './sandbox-tables.ts';
import { findAgeMs, findHibernatedMs, findUnseenMs, findBilledMs } from '../../time/lifetime.ts';
import { NO_ROLLBACK } from './rollback.ts';
import { addUsage } from './usage.ts';

/** What goes into the audit log with each. */
export const HIBERNATED: AuditNote = { event: 'sandbox.hibernated', data: {} };
export const RESUMED: AuditNote = { event: 'sandbox.resumed', data: {} };

/**
 * The runner has saved it, at the time that the capture tells, since it was seen to run. That may be long ago: the answer
 * was lost, or the database was away when it came.
 */
export function buildHibernated(row: SandboxRow, capture: CaptureInfo, now: HostMoment): SandboxUpdate {
  const agoMs = Math.min(findSavedAgoMs(capture, now), findUnseenMs(row, now));
  return {
    status: 'hibernated',
    // What was saved has no VM that could still be put back.
    ...NO_ROLLBACK,
    hibernation_id: capture.id,
    hibernated_at: Math.round(now.wallMs - agoMs),
    billed_ms: findBilledMs(row, findAgeMs(row, now) - agoMs),
    ...addUsage(row, capture.usage),
  };
}

function findSavedAgoMs({ created_at, created_on_boot: onBoot }: CaptureInfo, now: HostMoment): number {
  const agoMs = onBoot?.boot_id === now.bootId ? now.bootMs - onBoot.ms : now.wallMs - Date.parse(created_at);
  return Math.max(0, agoMs);
}

/** Its VM runs again. After a boot of the host its age goes on by the time since the new boot. */
export function buildResumed(row: SandboxRow, now: HostMoment): SandboxUpdate {
  const isSameBoot = row.boot_id === now.bootId;
  return {
    status: 'running',
    hibernation_id: null,
    hibernated_at: null,
    hibernated_ms: findHibernatedMs(row, now),
    last_active_at: now.wallMs,
    last_seen_at: now.wallMs,
    last_seen_boot_ms: now.bootMs,
    ...(isSameBoot ? {} : { boot_id: now.bootId, created_boot_ms: now.bootMs - findAgeMs(row, now) }),
  };
}
