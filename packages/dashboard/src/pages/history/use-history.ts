/** The ended sandboxes, page by page. Those that end while the list is shown are put on top. */
import { signal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import type { Coppice, HistoryEntry, HistoryOptions } from '../../../../sdk/src/index.ts';
import { onEvents } from '../../service/live-events.ts';
import { mergeNewest } from './merge-newest.ts';

export interface HistoryFilter {
  status: 'all' | 'destroyed' | 'failed';
  labels: Readonly<Record<string, string>>;
}

const FIRST_PAGE = 100;
const GATHER_MS = 500;
/** A filter is being typed. */
const PAUSE_MS = 250;

/** Reads one list. After `end` it changes nothing more. */
export class HistoryList {
  /** Undefined until the first page has arrived. */
  readonly entries = signal<readonly HistoryEntry[] | undefined>(undefined);
  readonly error = signal<unknown>(undefined);
  readonly isLoading = signal(true);
  readonly hasMore = signal(false);
  readonly #client: Coppice;
  readonly #options: HistoryOptions;
  readonly #end = new AbortController();
  #pages: AsyncGenerator<HistoryEntry[], void, undefined>;
  #ahead: Promise<IteratorResult<HistoryEntry[], void>> | undefined;

  constructor(client: Coppice, { status, labels }: HistoryFilter) {
    this.#client = client;
    this.#options = {
      ...(status === 'all' ? {} : { status }),
      labels: { ...labels },
      signal: this.#end.signal,
    };
    this.#pages = client.history(this.#options).pages();
  }

  /** Adds the next page, and reads the one after it: only that shows whether there is one. */
  loadMore(): Promise<void> {
    return this.#settle(async () => {
      const { value } = await (this.#ahead ?? this.#pages.next());
      this.entries.value = [...(this.entries.value ?? []), ...(value ?? [])];
      const ahead = this.#pages.next();
      this.#ahead = ahead;
      const { done } = await ahead;
      this.hasMore.value = done !== true;
    });
  }

  /** Reads from the beginning. */
  reload(): Promise<void> {
    this.#pages = this.#client.history(this.#options).pages();
    this.#ahead = undefined;
    this.entries.value = undefined;
    this.hasMore.value = false;
    return this.loadMore();
  }

  /** Reads those that have ended since. */
  async loadNewest(): Promise<void> {
    if (this.entries.value === undefined) return;
    let isComplete = true;
    await this.#settle(async () => {
      const newest = await this.#client.history({ ...this.#options, limit: FIRST_PAGE });
      const merged = mergeNewest(this.entries.value ?? [], newest);
      isComplete = merged !== undefined;
      if (merged !== undefined) this.entries.value = merged;
    });
    if (!isComplete) await this.reload();
  }

  end(): void {
    this.#end.abort();
  }

  async #settle(work: () => Promise<void>): Promise<void> {
    this.isLoading.value = true;
    try {
      await work();
      this.error.value = undefined;
    } catch (error) {
      if (this.#end.signal.aborted) return;
      // A generator that has failed has no further pages.
      this.hasMore.value = false;
      this.error.value = error;
    } finally {
      this.isLoading.value = false;
    }
  }
}

export function useHistory(client: Coppice | undefined, filter: HistoryFilter): HistoryList | undefined {
  const key = JSON.stringify(filter);
  const list = useMemo(
    () => (client === undefined ? undefined : new HistoryList(client, filter)),
    [client, key],
  );
  useEffect(() => {
    if (list === undefined) return undefined;
    const timer = setTimeout(() => void list.loadMore(), PAUSE_MS);
    const leave = onEnds(() => void list.loadNewest());
    return () => {
      clearTimeout(timer);
      leave();
      list.end();
    };
  }, [list]);
  return list;
}

/** Calls `listener` when sandboxes have ended, or may have. */
function onEnds(listener: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const leave = onEvents((event) => {
    if (event !== undefined && event.type !== 'sandbox.destroyed' && event.type !== 'sandbox.failed') return;
    timer ??= setTimeout(() => {
      timer = undefined;
      listener();
    }, GATHER_MS);
  });
  return () => {
    leave();
    clearTimeout(timer);
  };
}
