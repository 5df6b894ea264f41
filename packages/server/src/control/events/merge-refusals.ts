/**
 * Refused connections of one sandbox become one event at most a second, whatever its guest does: the event lists a few
 * kinds of refusals and counts the others. Pure. A row of another version that cannot be read stays as it is: it must not
 * hold up the events behind it.
 */
import { EVENTS, type EventData, type Refusal } from '@coppice/contract';
import type { PendingEventRow } from './event-tables.ts';

const MAX_KINDS = 10;

interface Merged {
  row: PendingEventRow;
  parts: EventData<'network.blocked'>[];
}

/** Merges the refusals of each sandbox into the first of them. Other rows stay as they are, and the order, too. */
export function mergeRefusals(rows: readonly PendingEventRow[]): PendingEventRow[] {
  const bySandbox = new Map<string, Merged>();
  const kept: (PendingEventRow | Merged)[] = [];
  for (const row of rows) {
    const part = row.type === 'network.blocked' ? readRefusals(row.data) : undefined;
    if (part === undefined || row.sandbox_id === null) {
      kept.push(row);
      continue;
    }
    const same = bySandbox.get(row.sandbox_id);
    if (same !== undefined) {
      same.parts.push(part);
      continue;
    }
    const merged = { row, parts: [part] };
    bySandbox.set(row.sandbox_id, merged);
    kept.push(merged);
  }
  return kept.map((one) =>
    'parts' in one ? Object.assign({}, one.row, { data: JSON.stringify(sum(one.parts)) }) : one,
  );
}

function readRefusals(data: string): EventData<'network.blocked'> | undefined {
  try {
    return EVENTS['network.blocked'].parse(JSON.parse(data));
  } catch {
    return undefined;
  }
}

function sum(parts: readonly EventData<'network.blocked'>[]): EventData<'network.blocked'> {
  const kinds = new Map<string, Refusal>();
  for (const { refusals } of parts) for (const refusal of refusals) addTo(kinds, refusal);
  const refusals = [...kinds.values()].slice(0, MAX_KINDS);
  const count = parts.reduce((total, part) => total + part.count, 0);
  const listed = refusals.reduce((total, refusal) => total + refusal.count, 0);
  return { count, refusals, left_out: count - listed };
}

function addTo(kinds: Map<string, Refusal>, refusal: Refusal): void {
  const { count, ...kind } = refusal;
  const key = JSON.stringify([kind.domain, kind.ip, kind.port, kind.reason]);
  kinds.set(key, { ...kind, count: count + (kinds.get(key)?.count ?? 0) });
}
