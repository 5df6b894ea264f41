/** Notes every change of a sandbox's state that reaches PostgreSQL, whichever code wrote it. */
import assert from 'node:assert/strict';
import {
  EVENT_REASONS,
  FIRST_STATE,
  SANDBOX_EVENTS,
  TRANSITIONS,
  type SandboxEvent,
  type SandboxState,
  type StatusReason,
} from '@coppice/contract';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

export interface StateRow {
  /** Null for a new sandbox. */
  from: SandboxState | null;
  to: SandboxState;
  reason: StatusReason | null;
}

/** Begins the log, in a table that a trigger writes. Call once for each database. */
export async function beginStateLog(db: Database): Promise<void> {
  await sql`CREATE TABLE state_log (n bigserial, id text, "from" text, "to" text, reason text)`.execute(db);
  await sql`CREATE FUNCTION note_state() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'INSERT' THEN
      INSERT INTO state_log (id, "to", reason) VALUES (NEW.id, NEW.status, NEW.status_reason);
    ELSIF (OLD.status, OLD.status_reason) IS DISTINCT FROM (NEW.status, NEW.status_reason) THEN
      INSERT INTO state_log (id, "from", "to", reason) VALUES (NEW.id, OLD.status, NEW.status, NEW.status_reason);
    END IF;
    RETURN NULL; END $$`.execute(db);
  await sql`CREATE TRIGGER note_state AFTER INSERT OR UPDATE ON sandboxes
    FOR EACH ROW EXECUTE FUNCTION note_state()`.execute(db);
}

/** Lists the changes of one sandbox, the first one first. */
export async function readStates(db: Database, id: string): Promise<StateRow[]> {
  const { rows } = await sql<StateRow>`
    SELECT "from", "to", reason FROM state_log WHERE id = ${id} ORDER BY n`.execute(db);
  return rows;
}

/** Checks that the contract's table holds every change so far. */
export async function assertByTable(db: Database): Promise<void> {
  const { rows } = await sql<StateRow>`SELECT DISTINCT "from", "to", reason FROM state_log`.execute(db);
  assert.deepEqual(
    rows.filter((row) => !isByTable(row)),
    [],
    'the table of transitions does not hold these changes',
  );
}

function isByTable({ from, to, reason }: StateRow): boolean {
  if (from === null) return to === FIRST_STATE && reason === null;
  return SANDBOX_EVENTS.some((event) => isEvent({ from, to, reason }, event));
}

/** Returns whether `event` leads to this change. */
export function isEvent(
  { from, to, reason }: StateRow & { from: SandboxState },
  event: SandboxEvent,
): boolean {
  const transition = TRANSITIONS[from][event];
  const reasons = EVENT_REASONS[event];
  const isKnown = reason === null ? reasons.length === 0 : reasons.includes(reason);
  return transition.outcome === 'accept' && transition.to === to && isKnown;
}
