/** Reads events in pages of bounded size, each when the reader has consumed the one before it, without an end. */
import { setTimeout as delay } from 'node:timers/promises';
import type { EventFrame } from '@coppice/contract';
import type { EventSequencer } from './event-sequencer.ts';
import type { EventFilter, EventStore } from './event-store.ts';

const PAGE_EVENTS = 100;
/** After this time without an event, the reader learns its position: what it has not seen may be deleted later. */
const QUIET_MS = 15_000;

export interface FollowEvents {
  store: EventStore;
  sequencer: EventSequencer;
  filter: EventFilter;
  /** The id after which to begin; undefined: the newest. */
  after: number | undefined;
  /** Aborted when the reader has left. */
  left: AbortSignal;
}

/** Yields frames: first the position, or what is lost, then present events and new ones. */
export async function* followEvents(
  options: FollowEvents,
): AsyncGenerator<Exclude<EventFrame, { error: unknown }>> {
  const { store, sequencer, filter, left } = options;
  let news = Promise.withResolvers<void>();
  using _watch = sequencer.watch(filter.reach.organizationId, () => news.resolve());
  let { after, frame } = begin(options.after, await store.listPage(filter, options.after ?? 0, 1));
  yield frame;
  let told = after;
  while (!left.aborted) {
    news = Promise.withResolvers<void>();
    const page = await store.listPage(filter, after, PAGE_EVENTS);
    if (page.lostThrough > after && after > 0) {
      after = page.lostThrough;
      yield { type: 'lost', id: after };
      continue;
    }
    yield* page.records;
    told = page.records.at(-1)?.id ?? told;
    after = page.throughId;
    if (page.records.length > 0) continue;
    if (!(await isQuiet(news.promise, left)) || told === after) continue;
    yield { type: 'position', id: after };
    told = after;
  }
}

function begin(
  after: number | undefined,
  { lostThrough, lastId }: { lostThrough: number; lastId: number },
): { after: number; frame: Extract<EventFrame, { type: 'position' | 'lost' }> } {
  if (after === undefined) return { after: lastId, frame: { type: 'position', id: lastId } };
  // A database that was restored from a backup may not have reached the id yet.
  const from = after > lastId ? lastId : Math.max(after, after === 0 ? 0 : lostThrough);
  return { after: from, frame: { type: from === after ? 'position' : 'lost', id: from } };
}

/** Returns true if no event came before a position is due. */
async function isQuiet(news: Promise<void>, left: AbortSignal): Promise<boolean> {
  const over = new AbortController();
  const signal = AbortSignal.any([left, over.signal]);
  const silence = delay(QUIET_MS, true, { signal }).catch(() => false);
  try {
    return await Promise.race([silence, news.then(() => false)]);
  } finally {
    over.abort();
  }
}
