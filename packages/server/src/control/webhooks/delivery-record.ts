import type { DeliveryRecord } from '@coppice/contract';
import { toTimestamp } from '../time/timestamp.ts';
import type { AttemptRow, DeliveryRow } from './webhook-tables.ts';

/** A delivery with its last attempts. */
export interface LoggedDelivery extends Pick<
  DeliveryRow,
  'id' | 'event_id' | 'type' | 'state' | 'created_at' | 'next_at'
> {
  log: AttemptRow[];
}

export function buildDeliveryRecord({
  id,
  event_id,
  type,
  state,
  created_at,
  next_at,
  log,
}: LoggedDelivery): DeliveryRecord {
  return {
    id,
    event_id,
    type,
    state,
    created_at: new Date(created_at).toISOString(),
    next_attempt_at: toTimestamp(next_at),
    attempts: log.map(({ attempt, started_at, duration_ms, status, error, response }) => ({
      attempt,
      started_at: new Date(started_at).toISOString(),
      duration_ms,
      status,
      error,
      response,
    })),
  };
}
