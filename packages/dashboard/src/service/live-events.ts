/**
 * The events of the organization, which one stream brings to all parts of the page. Nothing is polled: a part that shows
 * something reads it again when an event concerns it, or when events may have been missed.
 */
import { effect } from '@preact/signals';
import type { Coppice, EventInfo } from '../../../sdk/src/index.ts';
import { isReachable } from './connection.ts';
import { client, noteExpiry } from './session.ts';

/** Called with each event; with undefined when events may have been missed. */
type EventListener = (event: EventInfo | undefined) => void;

const RETRY_MS = 2000;

const listeners = new Set<EventListener>();

/** Calls `listener` until the returned function is called. */
export function onEvents(listener: EventListener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Follows the events of the present client while the service can be reached, for as long as the page is open. */
export function followEvents(): void {
  let followed: Coppice | undefined;
  effect(() => {
    const current = client.value;
    if (current === undefined || !isReachable.value) return undefined;
    // The page was loaded without a stream for a while: after an outage, or for another team.
    if (followed !== undefined) announce(undefined);
    followed = current;
    const end = new AbortController();
    void follow(current, end.signal);
    return () => end.abort();
  });
}

async function follow(current: Coppice, signal: AbortSignal): Promise<void> {
  let after: number | undefined;
  while (!signal.aborted) {
    try {
      for await (const event of current.events({ after, signal })) {
        after = event.id;
        announce(event.type === 'lost' ? undefined : (event as EventInfo));
      }
    } catch (error) {
      if (signal.aborted) return;
      if (isRefusal(error)) return noteExpiry();
      console.debug(error);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      announce(undefined);
    }
  }
}

function isRefusal(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'unauthorized';
}

function announce(event: EventInfo | undefined): void {
  for (const listener of listeners) listener(event);
}
