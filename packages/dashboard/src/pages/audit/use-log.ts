/** A log, read once and then from where it was read to. */
import { useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { useResource, type Resource } from '../../service/resource.ts';
import type { LogEntry } from './filter-entries.ts';

type ReadAfter<Entry> = (after: number, signal: AbortSignal) => Promise<readonly Entry[]>;

/** Reads a log; each further reading appends the new entries. */
export function useLog<Entry extends LogEntry>(
  readAfter: ReadAfter<Entry>,
  inputs: readonly unknown[],
): Resource<readonly Entry[]> {
  // A reading that began for other inputs has the list of those.
  const known = useMemo((): { entries: readonly Entry[] } => ({ entries: [] }), inputs);
  return useResource(async (signal) => {
    const added = await readAfter(known.entries.at(-1)?.seq ?? 0, signal);
    if (!signal.aborted && added.length > 0) known.entries = [...known.entries, ...added];
    return known.entries;
  }, inputs);
}

export interface FollowedLog<Entry> {
  /** Undefined until the first entry has arrived. */
  entries: readonly Entry[] | undefined;
  error: unknown;
  /** Whether new entries appear as they are written. */
  isFollowing: boolean;
}

type Follow<Entry> = (after: number, signal: AbortSignal) => AsyncIterable<Entry>;

/** New entries are shown together. */
const GATHER_MS = 100;
const RETRY_MS = 2000;

/**
 * Follows a log while the page is in view. A browser has few connections to one server, and pages in the background need
 * none.
 */
export function useFollowedLog<Entry extends LogEntry>(
  follow: Follow<Entry>,
  inputs: readonly unknown[],
): FollowedLog<Entry> {
  const entries = useSignal<readonly Entry[] | undefined>(undefined);
  const error = useSignal<unknown>(undefined);
  const isFollowing = useSignal(false);
  const latest = useRef(follow);
  latest.current = follow;
  useEffect(() => {
    entries.value = undefined;
    error.value = undefined;
    let end: AbortController | undefined;
    const update = (): void => {
      if (document.visibilityState === 'hidden') {
        end?.abort();
        end = undefined;
      } else if (end === undefined) {
        end = new AbortController();
        void keepFollowing(latest, { entries, error, isFollowing }, end.signal);
      }
    };
    update();
    document.addEventListener('visibilitychange', update);
    return () => {
      end?.abort();
      document.removeEventListener('visibilitychange', update);
    };
  }, inputs);
  return { entries: entries.value, error: error.value, isFollowing: isFollowing.value };
}

interface Shown<Entry> {
  entries: { value: readonly Entry[] | undefined };
  error: { value: unknown };
  isFollowing: { value: boolean };
}

/** Follows until the log has ended. A connection that broke is made again. */
async function keepFollowing<Entry extends LogEntry>(
  follow: { current: Follow<Entry> },
  shown: Shown<Entry>,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    try {
      await gather(follow.current, shown, signal);
      return;
    } catch (fault) {
      if (signal.aborted) return;
      shown.error.value = fault;
      if (!isPassing(fault)) return;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

async function gather<Entry extends LogEntry>(
  follow: Follow<Entry>,
  { entries, error, isFollowing }: Shown<Entry>,
  signal: AbortSignal,
): Promise<void> {
  let added: Entry[] = [];
  let timer: ReturnType<typeof setTimeout> | undefined;
  const show = (): void => {
    clearTimeout(timer);
    timer = undefined;
    if (signal.aborted) return;
    entries.value = [...(entries.value ?? []), ...added];
    error.value = undefined;
    added = [];
  };
  isFollowing.value = true;
  try {
    for await (const entry of follow(entries.value?.at(-1)?.seq ?? 0, signal)) {
      added.push(entry);
      timer ??= setTimeout(show, GATHER_MS);
    }
    show();
  } finally {
    clearTimeout(timer);
    if (!signal.aborted) isFollowing.value = false;
  }
}

/** Whether a later attempt may succeed: no answer came, or the service is not ready. */
function isPassing(fault: unknown): boolean {
  if (!(fault instanceof Error) || !('status' in fault)) return false;
  return typeof fault.status !== 'number' || fault.status === 0 || fault.status >= 500;
}
