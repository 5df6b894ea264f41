import {
  readNumber,
  readObject,
  readOptionalString,
  readString,
  readStringMap,
  type WireObject,
} from '../transport/wire.ts';

/** Something that happened in your organization. */
export interface EventInfo {
  /** Position among all events: continue after it. */
  id: number;
  /** For example `sandbox.created`. A newer service may have types that this client does not know. */
  type: string;
  /** When it happened, ISO 8601 UTC. */
  timestamp: string;
  /** Id of the team. Null for what belongs to the whole organization. */
  teamId: string | null;
  /** Id of the sandbox. Null if there is none. */
  runId: string | null;
  /** Labels of the sandbox. */
  labels: Record<string, string>;
  /** Fields of the type, with the names that the service uses (snake_case). */
  data: Record<string, unknown>;
}

/** A gap: the service no longer keeps events that the client has not received. */
export interface LostEvents {
  type: 'lost';
  /** Events up to this id are gone. The next ones come after it. */
  id: number;
}

/** Parses an event from its wire form. Throws `TypeError` for another shape. */
export function parseEvent(value: unknown): EventInfo {
  const record: WireObject = readObject(value, 'the event');
  return {
    id: readNumber(record, 'id'),
    type: readString(record, 'type'),
    timestamp: readString(record, 'timestamp'),
    teamId: readOptionalString(record, 'team_id'),
    runId: readOptionalString(record, 'run_id'),
    labels: readStringMap(record, 'labels'),
    data: readObject(record['data'], 'data'),
  };
}
