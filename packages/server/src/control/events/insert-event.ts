import { EVENTS, type EventData, type EventType } from '@coppice/contract';
import type { Database } from '../db/database.ts';

/** An event that is no entry of an audit log. */
export type NewEvent = {
  [T in EventType]: {
    type: T;
    data: EventData<T>;
    /** Unix milliseconds. */
    at: number;
    organizationId: string;
    /** Null for what belongs to the whole organization. */
    teamId: string | null;
  };
}[EventType];

/** Writes an event. Call in the transaction of the change that it describes, and wake the numbering after it. */
export async function insertEvent(transaction: Database, event: NewEvent): Promise<void> {
  const { type, data, at, organizationId, teamId } = event;
  await transaction
    .insertInto('pending_events')
    .values({
      organization_id: organizationId,
      team_id: teamId,
      sandbox_id: null,
      type,
      at,
      data: JSON.stringify(EVENTS[type].parse(data)),
    })
    .execute();
}
