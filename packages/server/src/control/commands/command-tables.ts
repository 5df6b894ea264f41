/** Table of the commands that outlive their clients. Times are Unix milliseconds. */
import type { Generated, Insertable, Selectable, Updateable } from 'kysely';

export interface CommandTable {
  id: string;
  organization_id: string;
  sandbox_id: string;
  /** Id in the guest: that of the command which was started. Copies of the sandbox have it under ids of their own. */
  guest_id: string;
  command: string;
  tag: string | null;
  /** `starting`: the agent has not answered yet. `lost`: the guest has it no more. */
  state: 'starting' | 'running' | 'exited' | 'lost';
  exit_code: Generated<number | null>;
  timed_out: Generated<boolean>;
  /** As last seen. */
  output_bytes: Generated<number>;
  dropped_bytes: Generated<number>;
  /** The `seq` of its start in the audit log; null in a copy of the sandbox, whose log does not have the start. */
  start_seq: number | null;
  started_at: number;
  ended_at: Generated<number | null>;
}

export type CommandRow = Selectable<CommandTable>;
export type NewCommandRow = Insertable<CommandTable>;
export type CommandUpdate = Updateable<CommandTable>;

/** States in which the guest may still run it. */
export const OPEN_STATES = ['starting', 'running'] as const;
