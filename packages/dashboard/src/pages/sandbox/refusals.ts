/** Refused connections of a sandbox, gathered from its events. Names and addresses in them come from the guest. */
import type { EventInfo } from '../../../../sdk/src/index.ts';

export interface Refused {
  /** Unique among the refusals. */
  key: string;
  domain: string | undefined;
  ip: string | undefined;
  port: number | undefined;
  reason: string;
  count: number;
  /** ISO 8601 UTC. */
  lastAt: string;
}

export interface Refusals {
  /** Newest first. */
  kinds: readonly Refused[];
  /** Refused connections that events count without listing their kind. */
  leftOut: number;
  /** Id of the newest event. */
  lastId: number;
}

export const NO_REFUSALS: Refusals = { kinds: [], leftOut: 0, lastId: 0 };
export const REFUSAL_EVENT = 'network.blocked';

/** Kinds that are kept: a guest can make up as many names as it wants. */
const MAX_KINDS = 500;

/** Adds events, each once: those up to the newest one are known already. */
export function addRefusals(before: Refusals, events: readonly EventInfo[]): Refusals {
  const kinds = new Map(before.kinds.map((refused) => [refused.key, refused]));
  let { leftOut, lastId } = before;
  for (const { id, type, timestamp, data } of events) {
    if (type !== REFUSAL_EVENT || id <= lastId) continue;
    lastId = id;
    leftOut += toCount(data['left_out']);
    for (const entry of readList(data['refusals'])) {
      const read = readRefusal(entry, timestamp);
      const known = kinds.get(read.key);
      kinds.set(read.key, known === undefined ? read : { ...read, count: known.count + read.count });
    }
  }
  const sorted = [...kinds.values()].sort((a, b) => (a.lastAt < b.lastAt ? 1 : a.lastAt > b.lastAt ? -1 : 0));
  return { kinds: sorted.slice(0, MAX_KINDS), leftOut, lastId };
}

/** Describes where a connection was to go: `api.example.com:443`. */
export function describeTarget({ domain, ip, port }: Pick<Refused, 'domain' | 'ip' | 'port'>): string {
  const host = domain ?? ip ?? 'unknown destination';
  return port === undefined ? host : `${host}:${port}`;
}

function readRefusal(entry: Readonly<Record<string, unknown>>, lastAt: string): Refused {
  const domain = toText(entry['domain']);
  const ip = toText(entry['ip']);
  const port = typeof entry['port'] === 'number' ? entry['port'] : undefined;
  const reason = toText(entry['reason']) ?? 'unknown';
  const key = JSON.stringify([domain, domain === undefined ? ip : undefined, port, reason]);
  return { key, domain, ip, port, reason, count: toCount(entry['count']), lastAt };
}

function readList(value: unknown): readonly Readonly<Record<string, unknown>>[] {
  if (!Array.isArray(value)) return [];
  return value.filter(
    (entry): entry is Record<string, unknown> => typeof entry === 'object' && entry !== null,
  );
}

function toText(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function toCount(value: unknown): number {
  return typeof value === 'number' && value > 0 ? value : 0;
}
