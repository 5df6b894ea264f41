import { CoppiceError } from './errors.ts';
import type { Transport } from './transport.ts';

/** A cursor that never ends would otherwise be followed for ever. */
const MAX_PAGES = 10_000;
const MAX_PAGE_ITEMS = 100;

/** One page and the query of the next one; undefined after the last. */
export interface Page<Item> {
  items: Item[];
  nextQuery: string | undefined;
}

/**
 * A list that the service hands out in pages. Await it for all items, iterate over it for one after the other, or
 * over `pages()`; a page is fetched only when it is needed. Every await and every loop starts at the first page.
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

  /** Made by the client. */
  constructor(options: {
    firstQuery: string;
    fetchPage: (query: string) => Promise<Page<Item>>;
    /** At most this many items in all. */
    limit?: number | undefined;
  }) {
    this.#firstQuery = options.firstQuery;
    this.#fetchPage = options.fetchPage;
    this.#limit = options.limit ?? Infinity;
  }

  /** The pages as they come, none of them empty. */
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

  async *[Symbol.asyncIterator](): AsyncGenerator<Item, void, undefined> {
    for await (const page of this.pages()) yield* page;
  }

  // Lazy on purpose: a promise would fetch a page that a loop does not want.
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

/** Asks for one page of a list. */
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
 * The query of the `rel="next"` address in a Link header. Only the query is taken: behind a reverse proxy the
 * address may be one that cannot be reached, and the key must go to no other host.
 */
export function parseNextQuery(link: string | null): string | undefined {
  for (const [, address, parameters] of (link ?? '').matchAll(/<([^>]*)>([^,<]*)/g)) {
    if (address === undefined || !/;\s*rel="?next"?\s*(;|$)/i.test(parameters ?? '')) continue;
    const start = address.indexOf('?');
    return start === -1 ? undefined : address.slice(start);
  }
  return undefined;
}

/** Throws TypeError on a number of items that cannot be had; at once, and not when the first page is fetched. */
export function requireLimit(limit: number | undefined): void {
  if (limit === undefined || (Number.isInteger(limit) && limit > 0)) return;
  throw new TypeError(`list: limit must be a whole number above 0, not ${limit}`);
}

/** As the service takes them in a query: `key:value`, each of which must hold. */
export function formatLabels(labels: Record<string, string> = {}): string[] {
  return Object.entries(labels).map(([key, value]) => `${key}:${value}`);
}

/** How many items to ask for at once, of `limit` in all; undefined leaves it to the service. */
export function toPageItems(limit: number | undefined): number | undefined {
  return limit === undefined ? undefined : Math.min(limit, MAX_PAGE_ITEMS);
}

function endless(pages: number): CoppiceError {
  return new CoppiceError(`the list does not end: stopped after ${pages} pages`, {
    status: 0,
    code: 'invalid_response',
  });
}
