/** Builds the records of commands that callers receive. Pure. */
import { isFinal, type CommandRecord, type SandboxRecord } from '@coppice/contract';
import { toTimestamp } from '../time/timestamp.ts';
import { isOpen } from './command-changes.ts';
import type { CommandRow } from './command-tables.ts';

type CommandSandbox = Pick<SandboxRecord, 'status' | 'ended_at'>;

/** A command that runs when its sandbox ends is lost. */
export function buildCommandRecord(row: CommandRow, sandbox: CommandSandbox): CommandRecord {
  const isCutOff = isFinal(sandbox.status) && isOpen(row);
  return {
    id: row.id,
    run_id: row.sandbox_id,
    command: row.command,
    tag: row.tag,
    state: showState(row, isCutOff),
    exit_code: row.exit_code,
    timed_out: row.timed_out,
    started_at: new Date(row.started_at).toISOString(),
    ended_at: isCutOff ? sandbox.ended_at : toTimestamp(row.ended_at),
    output_bytes: row.output_bytes,
    dropped_bytes: row.dropped_bytes,
  };
}

function showState({ state }: CommandRow, isCutOff: boolean): CommandRecord['state'] {
  if (isCutOff) return 'lost';
  return state === 'starting' ? 'running' : state;
}
