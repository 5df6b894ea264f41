import type { EventRecord } from '@coppice/contract';
import type { EventRow } from './event-tables.ts';

export function buildEventRecord({ id, type, at, team_id, sandbox_id, labels, data }: EventRow): EventRecord {
  return {
    id,
    type,
    timestamp: new Date(at).toISOString(),
    team_id,
    run_id: sandbox_id,
    labels,
    data: JSON.parse(data) as Record<string, unknown>,
  };
}
