import MiniSearch from 'minisearch';
import { INDEX_OPTIONS, type SearchEntry } from './index-options.ts';

/** Limit of the index. A page loads it when its reader first searches. */
export const MAX_INDEX_BYTES = 3 << 20;
/** Text of one section that is indexed; more is the body of a long table. */
const MAX_SECTION_TEXT = 4_000;
const MAX_EXCERPT = 140;

export interface SearchSource {
  url: string;
  /** Heading of the section. */
  title: string;
  /** Title of its page. */
  page: string;
  kind: SearchEntry['kind'];
  text: string;
}

/** Returns the index as JSON. Throws if it exceeds its limit. */
export function buildIndex(sources: readonly SearchSource[]): string {
  const index = new MiniSearch<SearchEntry>(INDEX_OPTIONS);
  index.addAll(
    sources.map(({ text, ...source }, id) => ({
      ...source,
      id,
      text: text.slice(0, MAX_SECTION_TEXT),
      excerpt: excerptOf(text),
    })),
  );
  const json = JSON.stringify(index);
  if (Buffer.byteLength(json) > MAX_INDEX_BYTES)
    throw new Error(`the search index has ${Buffer.byteLength(json)} bytes, more than ${MAX_INDEX_BYTES}`);
  return json;
}

function excerptOf(text: string): string {
  const line = text.replaceAll(/\s+/gu, ' ').trim();
  return line.length <= MAX_EXCERPT ? line : `${line.slice(0, MAX_EXCERPT).replace(/\s\S*$/u, '')} …`;
}
