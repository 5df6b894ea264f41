import { CoppiceError } from './errors.ts';
import type { Transport } from './transport.ts';

/** Limits the number of pages: a service whose cursor never ends must not make the client loop forever. */
const MAX_PAGES = 10_000;
const MAX_PAGE_ITEMS = 100;

/** One page of a list. */
export interface Page<Item> {
  items: Item[];
  /** Query of the next page. Undefined after the last one. */
  nextQuery: string | undefined;
}

/**
 * A list that the client fetches page by page. Await it for all items, or iterate over it or over `pages()`. A page is
 * fetched only when it is needed. Every await and every loop starts at the first page. Both reject with
 * {@link CoppiceError}; the code is `invalid_response` for a list without an end.
 *
 * @example
 * const all = await client.sandboxes.list();
 * for await (const sandbox of client.sandboxes.list()) console.log(sandbox.id);
 * for await (const page of client.sandboxes.list().pages()) console.log(page.length);
 */
export class PagedList<Item> implements PromiseLike<Item[]>, AsyncIterable<Item> {
  readonly #firstQuery: string;
  readonly #fetchPage: (query: string) => Promise<Page<Item>>;
  readonly #limit: number;

  /** Called by the client only. */
  constructor(options: {
    firstQuery: string;
    fetchPage: (query: string) => Promise<Page<Item>>;
    /** Maximum number of items over all pages. */
    limit?: number | undefined;
  }) {
    this.#firstQuery = options.firstQuery;
    this.#fetchPage = options.fetchPage;
    this.#limit = options.limit ?? Infinity;
  }

  /** Yields one page after the other. No page is empty. */
  async *pages(): AsyncGenerator<Item[], void, undefined> {
    let query: string | undefined = this.#firstQuery;
    let left = this.#limit;
    for (let count = 0; query !== undefined && left > 0; count += 1) {
      if (count === MAX_PAGES) throw endless(count);
      const page: Page<Item> = await this.#fetchPage(query);
      const items = page.items.slice(0, left);
      left -= items.length;
      if (items.length > 0) yield items;
      if (page.nextQuery === query) throw endless(count + 1);
      query = page.nextQuery;
    }
  }

  /** Yields one item after the other. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Item, void, undefined> {
    for await (const page of this.pages()) yield* page;
  }

  // A thenable fetches nothing until it is awaited. A promise would fetch a page that a loop does not need.
  // oxlint-disable-next-line unicorn/no-thenable
  then<Result = Item[], Failure = never>(
    onFulfilled?: ((items: Item[]) => Result | PromiseLike<Result>) | null,
    onRejected?: ((reason: unknown) => Failure | PromiseLike<Failure>) | null,
  ): Promise<Result | Failure> {
    return this.#collect().then(onFulfilled, onRejected);
  }

  async #collect(): Promise<Item[]> {
    const items: Item[] = [];
    for await (const item of this) items.push(item);
    return items;
  }
}

/** Fetches one page of a list. */
export async function fetchPage<Item>(
  transport: Transport,
  { path, query, signal }: { path: string; query: string; signal: AbortSignal | undefined },
  parse: (value: unknown) => Item[],
): Promise<Page<Item>> {
  const request = { method: 'GET', path, query, idempotent: true, signal } as const;
  const { value, headers } = await transport.callJson(request, parse);
  return { items: value, nextQuery: parseNextQuery(headers.get('link')) };
}

/**
 * Returns the query of the `rel="next"` address in a Link header, or undefined if there is none. Only the query is
 * used: behind a reverse proxy the address may be unreachable, and the key must not be sent to another host.
 */
export function parseNextQuery(link: string | null): string | undefined {
  for (const [, address, parameters] of (link ?? '').matchAll(/<([^>]*)>([^,<]*)/g)) {
    if (address === undefined || !/;\s*rel="?next"?\s*(;|$)/i.test(parameters ?? '')) continue;
    const start = address.indexOf('?');
    return start === -1 ? undefined : address.slice(start);
  }
  return undefined;
}

/**
 * Throws `TypeError` unless `limit` is undefined or an integer above 0. Lists call it at once, not when they fetch the
 * first page.
 */
export function requireLimit(limit: number | undefined): void {
  if (limit === undefined || (Number.isInteger(limit) && limit > 0)) return;
  throw new TypeError(`list: limit must be a whole number above 0, not ${limit}`);
}

/** Returns labels in the form of a query, `key:value`. A sandbox must have all of them to match. */
export function formatLabels(labels: Record<string, string> = {}): string[] {
  return Object.entries(labels).map(([key, value]) => `${key}:${value}`);
}

/** Returns the page size for a list of at most `limit` items. Undefined leaves the size to the service. */
export function toPageItems(limit: number | undefined): number | undefined {
  return limit === undefined ? undefined : Math.min(limit, MAX_PAGE_ITEMS);
}

function endless(pages: number): CoppiceError {
  return new CoppiceError(`the list does not end: stopped after ${pages} pages`, {
    status: 0,
    code: 'invalid_response',
  });
}
