/** Which entries of audit logs are events, and what the events say. Pure. */
import {
  AUDIT_EVENTS,
  EVENTS,
  type AuditData,
  type AuditEvent,
  type EventData,
  type EventType,
  type Refusal,
} from '@coppice/contract';

/** An event as it is written: its data is JSON. */
export interface WrittenEvent {
  type: EventType;
  data: string;
}

type Build<E extends AuditEvent> = (data: AuditData<E>) => WrittenEvent | undefined;

/** The event has those fields of the entry that the type of event has. */
const sameFields =
  (type: EventType) =>
  (data: object): WrittenEvent => ({ type, data: JSON.stringify(EVENTS[type].parse(data)) });

const BUILD: { [E in AuditEvent]?: Build<E> } = {
  'sandbox.created': sameFields('sandbox.created'),
  'sandbox.forked': sameFields('sandbox.forked'),
  'sandbox.snapshot': sameFields('snapshot.created'),
  'sandbox.hibernated': sameFields('sandbox.hibernated'),
  'sandbox.resumed': sameFields('sandbox.resumed'),
  'sandbox.rolled_back': sameFields('sandbox.rolled_back'),
  'sandbox.destroyed': sameFields('sandbox.destroyed'),
  'sandbox.failed': sameFields('sandbox.failed'),
  'disk.attached': sameFields('disk.attached'),
  'disk.detached': sameFields('disk.detached'),
  'disk.snapshot': sameFields('disk.snapshot_created'),
  'exec.exit': (data) => (data.command_id === undefined ? undefined : sameFields('command.exited')(data)),
  'network.blocked': (data) => ({ type: 'network.blocked', data: JSON.stringify(countOne(data)) }),
};

/** Returns undefined for an entry that is no event. `data` is that of the entry, as JSON. */
export function buildAuditEvent(event: AuditEvent, data: string): WrittenEvent | undefined {
  const build = BUILD[event] as ((parsed: unknown) => WrittenEvent | undefined) | undefined;
  return build?.(AUDIT_EVENTS[event].parse(JSON.parse(data)));
}

function countOne({
  domain,
  ip,
  port,
  reason,
  count = 1,
}: AuditData<'network.blocked'>): EventData<'network.blocked'> {
  const refusal: Refusal = { domain, ip, port, reason, count };
  return { count, refusals: [refusal], left_out: 0 };
}
