/**
 * What is written when a sandbox is hibernated and when it is resumed. Pure.
 *
 *     running ── hibernation_id = hib… ─► the runner saves ─► hibernated ─► the runner restores ─► running, id forgotten
 *                        │ killed: is the VM there, or is the capture?          │ killed: is the VM there?
 *
 * The id is in the record before the runner is asked, so that a VM that is gone is known from one that was lost.
 */
import type { CaptureInfo } from '../../lib/runner-protocol.ts';
import type { HostMoment } from '../../lib/host-clock.ts';
import type { AuditNote } from '../audit/audit-chain.ts';
import type { SandboxRow, SandboxUpdate } from '../db/tables.ts';
import { findBilledMs } from './ending.ts';
import { findAgeMs, findHibernatedMs, findUnseenMs } from './lifetime.ts';
import { NO_ROLLBACK } from './rollback.ts';
import { addUsage } from './usage.ts';

/** What goes into the audit log with each. */
export const HIBERNATED: AuditNote = { event: 'sandbox.hibernated', data: {} };
export const RESUMED: AuditNote = { event: 'sandbox.resumed', data: {} };

/** The runner has saved it just now. */
export function buildHibernated(row: SandboxRow, capture: CaptureInfo, now: HostMoment): SandboxUpdate {
  return buildHibernatedAgo(row, capture, { now, agoMs: 0 });
}

/** The runner turns out to have saved it: since it was seen to run, at the time that the capture tells. */
export function buildFoundHibernated(row: SandboxRow, capture: CaptureInfo, now: HostMoment): SandboxUpdate {
  const agoMs = now.wallMs - Date.parse(capture.created_at);
  return buildHibernatedAgo(row, capture, {
    now,
    agoMs: Math.min(Math.max(0, agoMs), findUnseenMs(row, now)),
  });
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

function buildHibernatedAgo(
  row: SandboxRow,
  capture: CaptureInfo,
  { now, agoMs }: { now: HostMoment; agoMs: number },
): SandboxUpdate {
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
