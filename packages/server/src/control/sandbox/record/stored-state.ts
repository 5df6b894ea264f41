/**
 * State of a live sandbox as SQL has it, for controls without its driver. The control with the driver looks about every 10 s, with
 * each round of reconciliation, and writes what has changed:
 *
 *     operation    exact if the row names it: a resume, a hibernation, a rollback; else as of the last round
 *     expiresAt    exact but for the idle time, which begins with the last request before the last round
 *
 * So an end is never shown later than it is, except for the clock, and at most one round too early. After an outage, which
 * gives sandboxes a grace that SQL does not have, it is at most that grace too early.
 */
import type { SandboxOperation } from '@coppice/contract';
import type { Selectable } from 'kysely';
import { RECORD_COLUMNS, type LiveState, type RecordRow } from './record.ts';
import type { SandboxTable } from './sandbox-tables.ts';

/** Columns of a sandbox in a list. */
export const LISTED_COLUMNS = [
  ...RECORD_COLUMNS,
  'version',
  'last_active_at',
  'is_in_use',
  'operation',
  'is_resuming',
  'hibernation_id',
  'rollback_id',
] as const satisfies (keyof SandboxTable)[];

type StateColumn = Exclude<(typeof LISTED_COLUMNS)[number], keyof RecordRow>;
export type ListedRow = RecordRow & Pick<Selectable<SandboxTable>, StateColumn>;

export function readStoredState(row: ListedRow): LiveState {
  return { operation: findOperation(row), expiresAt: findExpiry(row) };
}

function findOperation(row: ListedRow): SandboxOperation | null {
  const { status, rollback_id, is_resuming, hibernation_id, operation } = row;
  if (status === 'hibernated') return is_resuming ? 'resuming' : null;
  if (status !== 'running') return null;
  if (rollback_id !== null) return 'rolling_back';
  return hibernation_id === null ? operation : 'hibernating';
}

/** As the timer in the driver computes it: idle-timer.ts. */
function findExpiry(row: ListedRow): number | null {
  const { status, created_at, max_lifetime_s, ends_at, timeout_s, last_active_at, is_in_use } = row;
  if (status !== 'running' && status !== 'hibernated') return null;
  const isIdle = status === 'running' && timeout_s > 0 && !is_in_use;
  const ends = [
    ...(max_lifetime_s === null ? [] : [created_at + max_lifetime_s * 1000]),
    ...(ends_at === null ? [] : [ends_at]),
    ...(isIdle ? [last_active_at + timeout_s * 1000] : []),
  ];
  return ends.length === 0 ? null : Math.min(...ends);
}
