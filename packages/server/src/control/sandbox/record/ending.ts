/** Builds the row change and the audit entries for the end of a sandbox: times, usage of the machine, cost. Pure. */
import { computeCostUnits, type SandboxEvent, type StatusReason } from '@coppice/contract';
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { VmEnd } from '../../../lib/protocol/runner-protocol.ts';
import type { AuditNote } from '../../audit/audit-chain.ts';
import type { SandboxRow, SandboxUpdate } from './sandbox-tables.ts';
import { buildDetachedNotes } from './disk-notes.ts';
import { findAgeMs, findAgeWhenSeenMs, findBilledMs, findSettledAgeMs } from '../../time/lifetime.ts';
import { buildRollbackNote, findUnheard, NO_ROLLBACK } from './rollback.ts';
import { changeState, type StateChange } from './state-change.ts';
import { addUsage } from './usage.ts';

/** The events that end a sandbox. */
export type EndEvent = Exclude<SandboxEvent, 'started' | 'saved'>;

export interface Ending {
  event: EndEvent;
  reason: StatusReason;
  /** Measured by the runner; undefined if there was no VM, or if it was lost with its measurements. */
  end?: VmEnd | undefined;
  now: HostMoment;
}

type Used = Pick<SandboxRow, 'cpu_ms' | 'mem_peak_bytes' | 'uptime_ms'>;
export type EndUpdate = SandboxUpdate & StateChange & Used;

/** The caller was answered that the create failed, even if the record was "running" for a moment. */
const CREATE_FAILED: ReadonlySet<StatusReason> = new Set(['create_failed', 'control_restarted']);

export function buildEnding(row: SandboxRow, ending: Ending): EndUpdate {
  const { event, reason, end } = ending;
  const livedMs = Math.max(findSettledAgeMs(row), findLivedMs(row, ending));
  const hasRun = row.status !== 'creating' && !CREATE_FAILED.has(reason);
  const uptimeMs = hasRun ? livedMs : findSettledAgeMs(row);
  const billedMs = findBilledMs(row, uptimeMs);
  return {
    ...changeState(row.status, event, reason),
    ended_at: row.created_at + livedMs,
    // While it ran, only the row of its runner had them: see seen-round.ts.
    last_seen_at: row.last_seen_at,
    last_seen_boot_ms: row.last_seen_boot_ms,
    create_ms: hasRun ? row.create_ms : null,
    hibernation_id: null,
    hibernated_at: null,
    ...NO_ROLLBACK,
    // The audit log still has the policy. In the row, lists of ended sandboxes would carry thousands of rules.
    network: null,
    sealed_env: null,
    disk_version: null,
    ...addUsage(addUsage(row, findUnheard(row, end)?.replaced_usage), end),
    uptime_ms: uptimeMs,
    billed_ms: billedMs,
    hibernated_ms: uptimeMs - billedMs,
    cost_units: computeCostUnits({ vcpus: row.vcpus, memMiB: row.mem_mib, billedMs }).toString(),
  };
}

/**
 * Builds the last entries of the audit log, which are committed with the change: a rollback of which control had no
 * answer, and the end.
 */
export function buildEndNotes(
  row: SandboxRow,
  change: StateChange & Used,
  { reason, end }: Pick<Ending, 'reason' | 'end'>,
): AuditNote[] {
  const { status, cpu_ms, mem_peak_bytes, uptime_ms } = change;
  const rollback = findUnheard(row, end);
  return [
    ...(rollback === undefined ? [] : [buildRollbackNote(rollback)]),
    ...(row.status === 'running' ? buildDetachedNotes(row) : []),
    {
      event: status === 'destroyed' ? 'sandbox.destroyed' : 'sandbox.failed',
      data: { cpu_ms, mem_peak_bytes, uptime_ms, reason },
    },
  ];
}

/** Returns how long the sandbox lived, from 0 to its age: a value outside that range means that a clock was set. */
function findLivedMs(row: SandboxRow, { reason, end, now }: Ending): number {
  const ageMs = findAgeMs(row, now);
  if (end === undefined) return reason === 'vm_lost' ? findAgeWhenSeenMs(row) : ageMs;
  const { ended_on_boot: onBoot } = end;
  const isOfThatBoot = row.boot_id === onBoot?.boot_id;
  // The host has rebooted since. The VM was gone long before the runner could report it, even if a caller requested its
  // end meanwhile.
  const isLost = reason === 'vm_lost' || end.reason === 'vmm_lost';
  if (isLost && row.boot_id !== null && onBoot !== undefined && !isOfThatBoot) return findAgeWhenSeenMs(row);
  const createdBootMs = isOfThatBoot ? row.created_boot_ms : null;
  const livedMs =
    onBoot === undefined || createdBootMs === null
      ? Date.parse(end.ended_at) - row.created_at
      : onBoot.ms - createdBootMs;
  return Math.min(Math.max(0, Math.round(livedMs)), ageMs);
}

/** Converts the runner's reason for an end into the event and reason of the record. */
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
