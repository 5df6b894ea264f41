/** Reads an audit log in pages of bounded size, each when the reader has consumed the one before it. */
import { setTimeout as delay } from 'node:timers/promises';
import type { AuditEntryRow } from './audit-tables.ts';
import type { AuditLog } from './audit-log.ts';
import type { AuditStore } from './audit-store.ts';

/** After this time without a new entry, the reader gets an empty page as a sign of life. */
const KEEP_ALIVE_MS = 15_000;

export interface ReadEntries {
  store: AuditStore;
  sandboxId: string;
  afterSeq: number;
}

export interface FollowEntries extends ReadEntries {
  audit: AuditLog;
  /** True once nothing more can be added. */
  hasEnded: () => Promise<boolean>;
  /** Aborted when the reader has left. */
  left: AbortSignal;
}

/** Yields all present entries, page by page. */
export async function* readEntries({
  store,
  sandboxId,
  afterSeq,
}: ReadEntries): AsyncGenerator<AuditEntryRow[]> {
  for (let seq = afterSeq; ;) {
    const page = await store.listEntries(sandboxId, seq);
    const last = page.at(-1);
    if (last === undefined) return;
    yield page;
    seq = last.seq;
  }
}

/** Yields all present entries and then new ones, until the end. An empty page is a sign of life. */
export async function* followEntries(options: FollowEntries): AsyncGenerator<AuditEntryRow[]> {
  const { audit, sandboxId, hasEnded, left } = options;
  let news = Promise.withResolvers<void>();
  using _watch = audit.watch(sandboxId, () => news.resolve());
  for (let afterSeq = options.afterSeq; !left.aborted;) {
    news = Promise.withResolvers<void>();
    const isOver = await hasEnded();
    for await (const page of readEntries({ ...options, afterSeq })) {
      afterSeq = page.at(-1)?.seq ?? afterSeq;
      yield page;
    }
    if (isOver) return;
    if (await isQuiet(news.promise, left)) yield [];
  }
}

/** Returns true if no entry came before a sign of life is due. */
async function isQuiet(news: Promise<void>, left: AbortSignal): Promise<boolean> {
  const over = new AbortController();
  const signal = AbortSignal.any([left, over.signal]);
  const silence = delay(KEEP_ALIVE_MS, true, { signal }).catch(() => false);
  try {
    return await Promise.race([silence, news.then(() => false)]);
  } finally {
    over.abort();
  }
}
