/** Reads events in pages of bounded size, each when the reader has consumed the one before it, without an end. */
import { setTimeout as delay } from 'node:timers/promises';
import type { EventFrame } from '@coppice/contract';
import type { EventFilter, EventPage } from './event-store.ts';
import type { Events } from './events.ts';

const PAGE_EVENTS = 100;
/** After this time without an event, the reader learns its position: what it has not seen may be deleted later. */
const QUIET_MS = 15_000;
/** A stream reads new events at most this often, however fast they come. */
const PACE_MS = 100;

export interface FollowEvents extends Events {
  filter: EventFilter;
  /** The id after which to begin; undefined: the newest. */
  after: number | undefined;
  /** Aborted when the reader has left. */
  left: AbortSignal;
}

/** Yields frames: first the position, or what is lost, then present events and new ones. Throws when `left` aborts. */
export async function* followEvents(
  options: FollowEvents,
): AsyncGenerator<Exclude<EventFrame, { error: unknown }>> {
  const { store, sequencer, reads, filter, left } = options;
  const { organizationId } = filter.reach;
  const read = (from: number, limit: number): Promise<EventPage> =>
    reads.run(left, () => store.listPage(filter, from, limit), organizationId);
  let news = Promise.withResolvers<void>();
  using _watch = sequencer.watch(organizationId, () => news.resolve());
  let { after, frame } = begin(options.after, await read(options.after ?? 0, 1));
  yield frame;
  let told = after;
  while (!left.aborted) {
    news = Promise.withResolvers<void>();
    const paced = performance.now() + PACE_MS;
    const page = await read(after, PAGE_EVENTS);
    if (page.lostThrough > after && after > 0) {
      after = page.lostThrough;
      yield { type: 'lost', id: after };
      continue;
    }
    yield* page.records;
    told = page.records.at(-1)?.id ?? told;
    after = page.throughId;
    if (page.records.length === PAGE_EVENTS) continue;
    const isPositionDue = await isQuiet(news.promise, left);
    await delay(Math.max(0, paced - performance.now()), undefined, { signal: left });
    if (!isPositionDue || told === after) continue;
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
