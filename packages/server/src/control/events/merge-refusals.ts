/**
 * Refused connections of one sandbox become one event at most a second, whatever its guest does: the event lists a few
 * kinds of refusals and counts the others. Pure.
 */
import { EVENTS, type EventData, type Refusal } from '@coppice/contract';
import type { PendingEventRow } from './event-tables.ts';

const MAX_KINDS = 10;

/** Merges the refusals of each sandbox into the first of them. Other rows stay as they are, and the order, too. */
export function mergeRefusals(rows: readonly PendingEventRow[]): PendingEventRow[] {
  const bySandbox = new Map<string, PendingEventRow[]>();
  for (const row of rows) {
    if (row.type !== 'network.blocked' || row.sandbox_id === null) continue;
    const same = bySandbox.get(row.sandbox_id) ?? [];
    bySandbox.set(row.sandbox_id, same);
    same.push(row);
  }
  const merged = new Map([...bySandbox.values()].map((same) => [same[0]?.ordinal, mergeOne(same)]));
  return rows.flatMap((row) => {
    if (row.type !== 'network.blocked' || row.sandbox_id === null) return [row];
    return merged.get(row.ordinal) ?? [];
  });
}

function mergeOne(rows: readonly PendingEventRow[]): PendingEventRow[] {
  const [first] = rows;
  if (first === undefined) return [];
  const parts = rows.map((row) => EVENTS['network.blocked'].parse(JSON.parse(row.data)));
  return [{ ...first, data: JSON.stringify(sum(parts)) }];
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
