import {
  readFlag,
  readNumber,
  readObject,
  readOptionalNumber,
  readOptionalString,
  readString,
} from '../transport/wire.ts';

/**
 * State of a command. `lost`: the sandbox ended before it, or was rolled back to a time before its start, or it could not be
 * started.
 */
export type CommandState = 'running' | 'exited' | 'lost';

/** A command that outlives its client. */
export interface CommandInfo {
  /** Id of the command, for example `cmd0123456789abcdef0123`. */
  id: string;
  /** Id of the sandbox. */
  runId: string;
  /** The command line. */
  command: string;
  /** Tag that the caller chose. Null if there is none. */
  tag: string | null;
  state: CommandState;
  /** Exit code: 124 when the timeout elapsed, 128 + n when signal n ended it. Null while it runs, and if it is lost. */
  exitCode: number | null;
  /** True if the timeout elapsed and the command was killed. */
  timedOut: boolean;
  /** ISO 8601 UTC. */
  startedAt: string;
  /** ISO 8601 UTC. Null while it runs. */
  endedAt: string | null;
  /** Bytes of standard output and standard error together, as last reported by the sandbox. */
  outputBytes: number;
  /** How many of the first of these bytes are kept no more. */
  droppedBytes: number;
}

const STATES: readonly string[] = ['running', 'exited', 'lost'] satisfies CommandState[];

export function parseCommandInfo(value: unknown): CommandInfo {
  const record = readObject(value, 'the command record');
  const state = readString(record, 'state');
  if (!STATES.includes(state)) throw new TypeError(`state is ${state}`);
  return {
    id: readString(record, 'id'),
    runId: readString(record, 'run_id'),
    command: readString(record, 'command'),
    tag: readOptionalString(record, 'tag'),
    state: state as CommandState,
    exitCode: readOptionalNumber(record, 'exit_code'),
    timedOut: readFlag(record, 'timed_out'),
    startedAt: readString(record, 'started_at'),
    endedAt: readOptionalString(record, 'ended_at'),
    outputBytes: readNumber(record, 'output_bytes'),
    droppedBytes: readNumber(record, 'dropped_bytes'),
  };
}
