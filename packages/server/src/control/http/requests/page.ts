import type { FastifyReply } from 'fastify';
import { formatCursor } from './cursor.ts';

export interface Listed<T> {
  /** One record more than a page holds, if there are that many. */
  records: T[];
  createdAt: number[];
}

export interface PageOf {
  path: string;
  limit: number;
  /** Query fields by which the next page is filtered, too. */
  filter: URLSearchParams;
}

/** Returns the page, and sets a `Link` header to the next one. */
export function sendPage<T extends { id: string }>(reply: FastifyReply, listed: Listed<T>, of: PageOf): T[] {
  return sendIdentifiedPage(reply, { ...listed, ids: listed.records.map(({ id }) => id) }, of);
}

/** Like {@link sendPage}, for records that do not show their ids. */
export function sendIdentifiedPage<T>(
  reply: FastifyReply,
  { records, createdAt, ids }: Listed<T> & { ids: readonly string[] },
  { path, limit, filter }: PageOf,
): T[] {
  const page = records.slice(0, limit);
  const lastId = ids[page.length - 1];
  const lastCreatedAt = createdAt[page.length - 1];
  if (records.length <= limit || lastId === undefined || lastCreatedAt === undefined) return page;
  const cursor = formatCursor({ createdAt: lastCreatedAt, id: lastId });
  linkNext(reply, path, new URLSearchParams([['limit', String(limit)], ['cursor', cursor], ...filter]));
  return page;
}

/** Sets a `Link` header to the next page. The link is relative, so that it works behind any proxy. */
export function linkNext(reply: FastifyReply, path: string, query: URLSearchParams): void {
  reply.header('link', `<${path}?${query.toString()}>; rel="next"`);
}
