/** Tables of events. Times are Unix milliseconds. */
import type { EventType } from '@coppice/contract';
import type { Generated, Selectable } from 'kysely';

/** Events that have no id yet. Each is written in the transaction of the change that it describes. */
export interface PendingEventTable {
  ordinal: Generated<number>;
  organization_id: string;
  team_id: string | null;
  sandbox_id: string | null;
  type: EventType;
  at: number;
  labels: Generated<Record<string, string>>;
  /** JSON. */
  data: string;
}

export interface EventTable extends Omit<PendingEventTable, 'ordinal'> {
  id: number;
  /** When it got its id; grows with the id, unless the clock is set. */
  numbered_at: number;
}

/** One row. */
export interface EventCounterTable {
  is_only: Generated<boolean>;
  last_id: number;
}

/** What is no longer kept. */
export interface EventHorizonTable {
  organization_id: string;
  /** The events of the organization up to this id are deleted. */
  lost_through: number;
}

/** Ids of events that a restored backup does not have. Readers that have seen one of them have missed something. */
export interface EventGapTable {
  /** The last id in the backup. */
  after_id: number;
  /** Ids continue after this one. */
  through_id: number;
}

export type PendingEventRow = Selectable<PendingEventTable>;
export type EventRow = Selectable<EventTable>;
