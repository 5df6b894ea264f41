/**
 * The one writer of all audit chains. What waits is written in one statement for all sandboxes (group commit); each sandbox's
 * entries keep the order in which they came:
 *
 *     append ──► waiting of sandbox A ─┐
 *     append ──► waiting of sandbox B ─┴─ batch ─► INSERT ─► heads move on, callers go on
 *     commit ──► waiting of sandbox A ──── alone ─► BEGIN, the caller's change, INSERT, COMMIT
 *
 * When the answer to a statement is lost, it may have been carried out or not: the head is then read again, and what is not
 * in the chain is written once more, byte for byte, until the deadline. A statement that is carried out late meets the
 * primary key (sandbox, seq), so that no chain ever forks.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError, isLastEvent } from '@coppice/contract';
import type { Logger } from 'pino';
import type { AuditEntryRow } from './audit-tables.ts';
import type { Database } from '../db/database.ts';
import { isDatabaseAway } from '../db/database-error.ts';
import type { Clock } from '../time/clock.ts';
import { AuditChain, type AuditNote } from './audit-chain.ts';
import type { Line, Part, Waiting, Written } from './audit-line.ts';
import { gone, isUnreadable, mayRetry, notWritten } from './write-errors.ts';
import type { AuditStore } from './audit-store.ts';
import { OpenProcesses } from './open-processes.ts';
import type { TeamSecrets } from './team-secrets.ts';
import { stretched } from '../../lib/waiting/deadline.ts';

/** How long what has happened waits for a database that is away, before its caller is refused. */
const WRITE_DEADLINE_MS = 10_000;
const RETRY_DELAY_MS = 100;
/** Of one statement. */
const MAX_BATCH_NOTES = 1_000;

export interface AuditLogParts {
  db: Database;
  store: AuditStore;
  secrets: TeamSecrets;
  clock: Pick<Clock, 'wallMs'>;
  log: Logger;
}

export class AuditLog {
  /** What has an entry of its end to come. */
  readonly processes = new OpenProcesses();
  readonly #parts: AuditLogParts;
  readonly #lines = new Map<string, Line>();
  /** Those that have something to write, and are not being written. */
  readonly #ready = new Set<Line>();
  readonly #watchers = new Map<string, Set<() => void>>();
  #isWriting = false;

  constructor(parts: AuditLogParts) {
    this.#parts = parts;
  }

  /**
   * Resolves with the entry's `seq` when it is durable. Throws `invalid_state` when the sandbox's log has had its last
   * entry, `unavailable` when the database does not take it.
   */
  async append(sandboxId: string, note: AuditNote): Promise<number> {
    return (await this.#enqueue(sandboxId, { notes: [note] })).seq;
  }

  /** Commits `work` and the entries together: all or nothing. Throws what `work` throws, else as {@link append}. */
  async commit<T>(
    sandboxId: string,
    notes: AuditNote | readonly AuditNote[],
    work: (transaction: Database) => Promise<T>,
  ): Promise<T> {
    return (await this.#enqueue(sandboxId, { notes: [notes].flat(), work })).result as T;
  }

  /** Whether an entry says that this rollback was done. */
  hasRollback(sandboxId: string, rollbackId: string): Promise<boolean> {
    return this.#parts.store.hasRollback(sandboxId, rollbackId);
  }

  /** `listener` is called after each entry of this sandbox, until the result is disposed. */
  watch(sandboxId: string, listener: () => void): Disposable {
    const watchers = this.#watchers.get(sandboxId) ?? new Set();
    this.#watchers.set(sandboxId, watchers.add(listener));
    return {
      [Symbol.dispose]: () => {
        watchers.delete(listener);
        if (watchers.size === 0 && this.#watchers.get(sandboxId) === watchers)
          this.#watchers.delete(sandboxId);
      },
    };
  }

  #enqueue(sandboxId: string, item: Pick<Waiting, 'notes' | 'work'>): Promise<Written> {
    const { promise, resolve, reject } = Promise.withResolvers<Written>();
    const line = this.#lines.get(sandboxId) ?? { sandboxId, chain: undefined, waiting: [], isBusy: false };
    this.#lines.set(sandboxId, line);
    line.waiting.push({ ...item, resolve, reject });
    if (!line.isBusy) this.#ready.add(line);
    void this.#writeAll();
    return promise;
  }

  async #writeAll(): Promise<void> {
    if (this.#isWriting) return;
    this.#isWriting = true;
    for (let batch = this.#takeBatch(); batch.length > 0; batch = this.#takeBatch()) await this.#write(batch);
    this.#isWriting = false;
  }

  /** Begins what is written alone, and returns what can be written together. */
  #takeBatch(): Part[] {
    const batch: Part[] = [];
    let notes = 0;
    for (const line of this.#ready) {
      if (notes >= MAX_BATCH_NOTES) break;
      this.#ready.delete(line);
      line.isBusy = true;
      const first = line.waiting.findIndex(({ work }) => work !== undefined);
      const items = line.waiting.splice(0, first === -1 ? line.waiting.length : Math.max(first, 1));
      notes += items.length;
      if (first === 0) void this.#writeAlone({ line, items });
      else batch.push({ line, items });
    }
    return batch;
  }

  async #write(batch: readonly Part[]): Promise<void> {
    const endMs = performance.now() + stretched(WRITE_DEADLINE_MS);
    let parts = batch;
    while (parts.length > 0) {
      try {
        parts = await this.#prepare(parts);
        await this.#insert(parts);
        return;
      } catch (error) {
        for (const { line } of parts) line.chain = undefined;
        if (!isDatabaseAway(error) && parts.length > 1) {
          // One of them is at fault: the others must not suffer for it.
          for (const part of parts) await this.#write([part]);
          return;
        }
        if (!mayRetry(error) || performance.now() > endMs) {
          for (const part of parts) this.#fail(part, error);
          return;
        }
        await delay(RETRY_DELAY_MS);
      }
    }
  }

  /** Builds what is to be inserted; those that turn out to be written, or cannot be, are settled and left out. */
  async #prepare(parts: readonly Part[]): Promise<Part[]> {
    await this.#load(parts.map(({ line }) => line));
    return parts.filter((part) => {
      const { chain } = part.line;
      if (chain === undefined) this.#fail(part, gone(part.line.sandboxId));
      else if (part.rows !== undefined && chain.endsWith(part.rows)) this.#settle(part, part.rows);
      else return this.#build(part, chain);
      return false;
    });
  }

  #build(part: Part, chain: AuditChain): boolean {
    try {
      const notes = part.items.flatMap((item) => item.notes);
      // At the same place of the same chain the same entry, so that the one tried before is known if it comes through.
      if (part.previous !== chain.previous) part.rows = chain.extend(notes, this.#parts.clock.wallMs());
      part.previous = chain.previous;
      return true;
    } catch (error) {
      this.#fail(part, error);
      return false;
    }
  }

  async #insert(parts: readonly Part[]): Promise<void> {
    if (parts.length === 0) return;
    await this.#parts.store.insert(parts.flatMap(({ rows }) => rows ?? []));
    for (const part of parts) this.#settle(part, part.rows ?? []);
  }

  async #writeAlone(part: Part): Promise<void> {
    const { line, items } = part;
    try {
      const [ready] = await this.#prepare([part]);
      const [item] = items;
      if (ready === undefined || item?.work === undefined) return;
      const { work } = item;
      const result = await this.#parts.db.transaction().execute(async (transaction) => {
        const done = await work(transaction);
        await this.#parts.store.insert(ready.rows ?? [], transaction);
        return done;
      });
      this.#settle(part, ready.rows ?? [], result);
    } catch (error) {
      line.chain = undefined;
      if (!(await this.#endUnwritten(part, error))) this.#fail(part, error);
    } finally {
      void this.#writeAll();
    }
  }

  /** What nobody can write any more must not keep a sandbox from its end. False when that is not what happened. */
  async #endUnwritten(part: Part, cause: unknown): Promise<boolean> {
    const [item] = part.items;
    const last = item?.notes.at(-1);
    if (item?.work === undefined || last === undefined || !isLastEvent(last.event) || !isUnreadable(cause))
      return false;
    const { db, log } = this.#parts;
    try {
      const result = await db.transaction().execute(item.work);
      log.error({ err: cause, sandbox_id: part.line.sandboxId }, 'an audit log ends without its last entry');
      this.#settle(part, [], result);
    } catch (error) {
      this.#fail(part, error);
    }
    return true;
  }

  /** Only lines whose chain is not known. */
  async #load(lines: readonly Line[]): Promise<void> {
    const unknown = new Map(
      lines.filter(({ chain }) => chain === undefined).map((line) => [line.sandboxId, line]),
    );
    if (unknown.size === 0) return;
    const { store, secrets } = this.#parts;
    for (const { sandboxId, teamId, keyId, head } of await store.listChains([...unknown.keys()])) {
      const line = unknown.get(sandboxId);
      const { id, secret } = await (keyId === null ? secrets.ensure(teamId) : secrets.get(keyId));
      if (keyId === null) await store.setKey(sandboxId, id);
      if (line !== undefined) line.chain = new AuditChain(sandboxId, secret, head);
    }
  }

  #settle({ line, items }: Part, rows: readonly AuditEntryRow[], result?: unknown): void {
    line.chain?.advance(rows);
    let first = 0;
    for (const item of items) {
      item.resolve({ seq: rows[first]?.seq ?? 0, result });
      first += item.notes.length;
    }
    this.#release(line);
    for (const wake of this.#watchers.get(line.sandboxId) ?? []) wake();
  }

  #fail({ line, items }: Part, error: unknown): void {
    const shown = error instanceof AppError ? error : notWritten(error);
    if (shown !== error)
      this.#parts.log.warn({ err: error, sandbox_id: line.sandboxId }, 'the audit log could not be written');
    for (const item of items) item.reject(shown);
    this.#release(line);
  }

  #release(line: Line): void {
    line.isBusy = false;
    const isOver = line.chain === undefined || line.chain.isClosed;
    if (line.waiting.length > 0) this.#ready.add(line);
    else if (isOver) this.#lines.delete(line.sandboxId);
  }
}
