/** What is written when a sandbox ends: times, use of the machine, cost. Pure. */
import { computeCostUnits, type StatusReason } from '@coppice/contract';
import type { VmEnd } from '../../lib/runner-protocol.ts';
import type { SandboxRow, SandboxUpdate } from '../db/tables.ts';

export interface Ending {
  status: 'destroyed' | 'failed';
  reason: StatusReason;
  /** What the runner measured; undefined when there was no VM, or it was lost with its measures. */
  end?: VmEnd | undefined;
  /** Unix milliseconds, used when the runner does not say when it ended. */
  fallbackEndedAt: number;
  now: number;
}

/** Sandboxes that never worked are not billed. */
const UNBILLED: ReadonlySet<StatusReason> = new Set(['create_failed', 'control_restarted']);

export function buildEnding(
  row: SandboxRow,
  { status, reason, end, fallbackEndedAt, now }: Ending,
): SandboxUpdate {
  const told = end === undefined ? fallbackEndedAt : Date.parse(end.ended_at);
  // The runner's clock is the host's; what lies outside the sandbox's life is a clock that was set.
  const endedAt = Math.min(Math.max(told, row.created_at), Math.max(now, row.created_at));
  const uptimeMs = UNBILLED.has(reason) ? 0 : endedAt - row.created_at;
  return {
    status,
    status_reason: reason,
    ended_at: endedAt,
    cpu_ms: end?.cpu_ms ?? 0,
    mem_peak_bytes: end?.mem_peak_bytes ?? 0,
    uptime_ms: uptimeMs,
    cost_units: computeCostUnits({ vcpus: row.vcpus, memMiB: row.mem_mib, billedMs: uptimeMs }).toString(),
  };
}

/** How the runner's reason shows in the record. */
export function readEndReason(end: VmEnd): { event: 'ended' | 'lost'; reason: StatusReason } {
  switch (end.reason) {
    case 'destroyed':
      return { event: 'ended', reason: 'requested' };
    case 'guest_shutdown':
      return { event: 'ended', reason: 'guest_shutdown' };
    case 'guest_panic':
      return { event: 'lost', reason: 'guest_panic' };
    case 'vmm_lost':
      return { event: 'lost', reason: 'vm_lost' };
    default:
      return end.reason satisfies never;
  }
}
