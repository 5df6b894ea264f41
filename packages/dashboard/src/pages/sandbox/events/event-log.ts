/** The events of one sandbox, as the tab shows them: newest first, the latest of them, in a group. */
import type { EventInfo } from '../../../../../sdk/src/index.ts';

/** The older ones stay with the service. */
export const MAX_KEPT = 5000;

export const EVENT_GROUPS = ['all', 'life', 'commands', 'network', 'other'] as const;
export type EventGroup = (typeof EVENT_GROUPS)[number];

/** Returns the group of a type, by the part before its dot. */
export function groupOf(type: string): Exclude<EventGroup, 'all'> {
  if (type.startsWith('sandbox.') || type.startsWith('snapshot.')) return 'life';
  if (type.startsWith('command.')) return 'commands';
  if (type.startsWith('network.')) return 'network';
  return 'other';
}

/** Adds events, in any order, to those that are known, newest first. Each appears once. */
export function mergeEvents(known: readonly EventInfo[], added: readonly EventInfo[]): readonly EventInfo[] {
  const ids = new Set(known.map(({ id }) => id));
  const news = added.filter(({ id }) => !ids.has(id) && ids.add(id));
  return news.length === 0 ? known : [...news, ...known].sort((a, b) => b.id - a.id).slice(0, MAX_KEPT);
}
