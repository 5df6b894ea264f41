/**
 * The only writer of audit chains in this process. It writes the waiting entries of all sandboxes in one statement (group commit).
 * Each sandbox's entries keep the order in which they arrived:
 *
 *     append ──► waiting of sandbox A ─┐
 *     append ──► waiting of sandbox B ─┴─ batch ─► INSERT ─► heads advance, callers continue
 *     commit ──► waiting of sandbox A ──── alone ─► BEGIN, the caller's change, INSERT, COMMIT
 *
 * When the answer to a statement is lost, the statement may have been executed or not. The writer then reads the head
 * again and writes missing entries once more, byte for byte, until the deadline. A statement that is executed late
 * violates the primary key (sandbox, seq), so no chain ever forks. The same holds for the entries of another control: it
 * may write one when it takes a snapshot of the disk of a sandbox, or when it takes over a runner. The head is then read again.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError, isLastEvent } from '@coppice/contract';
import type { Logger } from 'pino';
import type { AuditEntryRow } from './audit-tables.ts';
import type { Database } from '../db/database.ts';
import { isDatabaseAway, isTaken } from '../db/database-error.ts';
import type { Clock } from '../time/clock.ts';
import { AuditChain, type AuditNote } from './audit-chain.ts';
import type { Line, Part, Waiting, Written } from './audit-line.ts';
import { gone, isUnreadable, mayRetry, notWritten } from './write-errors.ts';
import type { AuditStore } from './audit-store.ts';
import { OpenProcesses } from './open-processes.ts';
import type { TeamSecrets } from './team-secrets.ts';
import { stretched } from '../../lib/waiting/deadline.ts';

/** How long an entry waits for an unreachable database before its caller gets an error. */
const WRITE_DEADLINE_MS = 10_000;
const RETRY_DELAY_MS = 100;
const PRIMARY_KEY = 'audit_entries_pkey';
/** Attempts to commit a change whose place in the chain another writer takes. */
const MAX_TAKEN = 5;
/** Limit of one statement. */
const MAX_BATCH_NOTES = 1_000;

export interface AuditLogParts {
  db: Database;
  store: AuditStore;
  secrets: TeamSecrets;
  clock: Pick<Clock, 'wallMs'>;
  /** Called when entries, and with them events, are committed. */
  onWritten?: () => void;
  log: Logger;
}

export class AuditLog {
  /** Processes whose closing entry is still to be written. */
  readonly processes = new OpenProcesses();
  readonly #parts: AuditLogParts;
  readonly #lines = new Map<string, Line>();
  /** Lines that have entries to write and are not being written. */
  readonly #ready = new Set<Line>();
  readonly #watchers = new Map<string, Set<() => void>>();
  #isWriting = false;

  constructor(parts: AuditLogParts) {
    this.#parts = parts;
  }

  /**
   * Resolves with the entry's `seq` when it is durable. Throws `invalid_state` if the sandbox's log already has its
   * last entry, `unavailable` if the database does not accept it.
   */
  async append(sandboxId: string, note: AuditNote): Promise<number> {
    return (await this.#enqueue(sandboxId, { notes: [note] })).seq;
  }

  /**
   * Commits `work` and the entries together: all or nothing. `work` gets the `seq` of the last entry. Throws the errors of
   * `work` and of {@link append}.
   */
  async commit<T>(
    sandboxId: string,
    notes: AuditNote | readonly AuditNote[],
    work: (transaction: Database, seq: number) => Promise<T>,
  ): Promise<T> {
    return (await this.#enqueue(sandboxId, { notes: [notes].flat(), work })).result as T;
  }

  /** Returns whether an entry records that this rollback was done. */
  hasRollback(sandboxId: string, rollbackId: string): Promise<boolean> {
    return this.#parts.store.hasRollback(sandboxId, rollbackId);
  }

  /** Calls `listener` after each entry of this sandbox, until the result is disposed. */
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

  /** Returns the sandboxes that have listeners. */
  watched(): string[] {
    return [...this.#watchers.keys()];
  }

  /** Calls the listeners of a sandbox: another control has written an entry. */
  wake(sandboxId: string): void {
    for (const listener of this.#watchers.get(sandboxId) ?? []) listener();
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

  /** Starts the parts that are written alone, and returns the parts that can be written together. */
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
          // One of them is at fault. Each is written alone, so that the others do not fail with it.
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

  /** Builds the rows to insert. Leaves out, and settles, parts that are already written or cannot be written. */
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
      // A retry at the same place of the chain reuses its rows, so that a late success of the first try is recognised.
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
    try {
      for (let taken = 0; !(await this.#tryAlone(part, taken < MAX_TAKEN)); taken += 1);
    } finally {
      void this.#writeAll();
    }
  }

  /** Returns false, with nothing done, if another writer took the place of the entries and they `mayRepeat`. */
  async #tryAlone(part: Part, mayRepeat: boolean): Promise<boolean> {
    const { line, items } = part;
    try {
      const [ready] = await this.#prepare([part]);
      const [item] = items;
      if (ready === undefined || item?.work === undefined) return true;
      const { work } = item;
      const result = await this.#parts.db.transaction().execute(async (transaction) => {
        const rows = ready.rows ?? [];
        const done = await work(transaction, rows.at(-1)?.seq ?? 0);
        await this.#parts.store.insert(rows, transaction);
        return done;
      });
      this.#settle(part, ready.rows ?? [], result);
    } catch (error) {
      line.chain = undefined;
      if (mayRepeat && isTaken(error, PRIMARY_KEY)) {
        delete part.rows;
        delete part.previous;
        return false;
      }
      if (!(await this.#endUnwritten(part, error))) this.#fail(part, error);
    }
    return true;
  }

  /** Ends a sandbox without its last entry if the chain's secret is unreadable. Returns false for any other cause. */
  async #endUnwritten(part: Part, cause: unknown): Promise<boolean> {
    const [item] = part.items;
    const last = item?.notes.at(-1);
    if (item?.work === undefined || last === undefined || !isLastEvent(last.event) || !isUnreadable(cause))
      return false;
    const { db, store, clock, log } = this.#parts;
    const { work } = item;
    try {
      const result = await db.transaction().execute(async (transaction) => {
        const done = await work(transaction, 0);
        const unwritten = { sandboxId: part.line.sandboxId, note: last, atMs: clock.wallMs() };
        await store.insertEvent(unwritten, transaction);
        return done;
      });
      log.error({ err: cause, sandbox_id: part.line.sandboxId }, 'an audit log ends without its last entry');
      this.#settle(part, [], result);
    } catch (error) {
      this.#fail(part, error);
    }
    return true;
  }

  /** Loads the chains of those lines that have none in memory. */
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
    this.#parts.onWritten?.();
    this.wake(line.sandboxId);
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
