/** Options of the search index: the same for the build and for the page that loads it. */
import type { Options } from 'minisearch';

export interface SearchEntry {
  id: number;
  url: string;
  title: string;
  page: string;
  kind: 'guides' | 'api' | 'reference' | 'internals';
  text: string;
  excerpt: string;
}

export const INDEX_OPTIONS: Options<SearchEntry> = {
  fields: ['title', 'page', 'text'],
  storeFields: ['url', 'title', 'page', 'kind', 'excerpt'],
};

/** Most readers use Coppice; few work on it. */
const KIND_WEIGHTS: Readonly<Record<string, number>> = {
  guides: 1.2,
  api: 1.1,
  reference: 1,
  internals: 0.5,
};

export const SEARCH_OPTIONS = {
  boost: { title: 4, page: 2 },
  prefix: true,
  fuzzy: (term: string): number | false => (term.length > 4 ? 0.2 : false),
  combineWith: 'AND' as const,
  boostDocument: (_id: unknown, _term: string, stored?: Record<string, unknown>): number =>
    KIND_WEIGHTS[String(stored?.['kind'])] ?? 1,
};
