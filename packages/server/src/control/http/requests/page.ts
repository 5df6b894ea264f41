import type { FastifyReply } from 'fastify';
import { formatCursor } from './cursor.ts';

export interface Listed<T> {
  /** One more than a page holds, if there are that many. */
  records: T[];
  createdAt: number[];
}

export interface PageOf {
  path: string;
  limit: number;
  /** What the next page is to be filtered by, too. */
  filter: URLSearchParams;
}

/** The page, with a `Link` to the next one in its head. */
export function sendPage<T extends { id: string }>(
  reply: FastifyReply,
  { records, createdAt }: Listed<T>,
  { path, limit, filter }: PageOf,
): T[] {
  const page = records.slice(0, limit);
  const last = page.at(-1);
  const lastCreatedAt = createdAt[page.length - 1];
  if (records.length <= limit || last === undefined || lastCreatedAt === undefined) return page;
  const cursor = formatCursor({ createdAt: lastCreatedAt, id: last.id });
  linkNext(reply, path, new URLSearchParams([['limit', String(limit)], ['cursor', cursor], ...filter]));
  return page;
}

/** Relative, so that it holds behind any proxy. */
export function linkNext(reply: FastifyReply, path: string, query: URLSearchParams): void {
  reply.header('link', `<${path}?${query.toString()}>; rel="next"`);
}
