/** Reads from a guest's report of a command how its row changes. Pure. */
import type { AuditNote } from '../audit/audit-chain.ts';
import { commandNotes } from '../audit/audited-process.ts';
import type { GuestCommand } from '../placement/runner-commands.ts';
import { OPEN_STATES, type CommandRow } from './command-tables.ts';

/** Fields that a report sets. */
export type CommandReport = Pick<
  CommandRow,
  'state' | 'exit_code' | 'timed_out' | 'output_bytes' | 'dropped_bytes' | 'ended_at'
>;

/** How a command ended: `ended_at` is set. */
export type CommandEnd = Pick<CommandRow, 'state' | 'ended_at'> & Partial<CommandReport>;

export function isOpen({ state }: Pick<CommandRow, 'state'>): boolean {
  return (OPEN_STATES as readonly string[]).includes(state);
}

/** Whether the report says more than the row. An ended command runs again only after a rollback. */
export function needsReport(row: CommandRow, { exit }: GuestCommand, mayRevive: boolean): boolean {
  if (isOpen(row)) return row.state === 'starting' || exit !== undefined;
  return mayRevive && exit === undefined;
}

/** Builds what a report changes. Its times are only believed within the command's own life. */
export function buildReport(
  { started_at }: Pick<CommandRow, 'started_at'>,
  { exit, ended_ago_ms, output_bytes, dropped_bytes }: GuestCommand,
  now: number,
): CommandReport {
  const counts = { output_bytes, dropped_bytes };
  if (exit === undefined)
    return { ...counts, state: 'running', exit_code: null, timed_out: false, ended_at: null };
  const ended_at = Math.min(now, Math.max(started_at, now - ended_ago_ms));
  return { ...counts, state: 'exited', exit_code: exit.exit_code, timed_out: exit.timed_out, ended_at };
}

/** Builds the audit entry of an end. A copy's log does not have the start. */
export function buildEndNote(
  { id, command, started_at, start_seq }: CommandRow,
  { exit_code = null, ended_at }: CommandEnd,
): AuditNote {
  const duration_ms = Math.max(0, Number(ended_at) - started_at);
  const start = start_seq === null ? {} : { start_seq };
  return commandNotes(command, id).closing({ exit_code, duration_ms, ...start });
}
