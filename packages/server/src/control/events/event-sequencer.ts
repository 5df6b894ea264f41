/**
 * Gives committed events their ids. An id from a sequence would not do: transactions commit in another order than they
 * take numbers, and a reader that has passed a number would never see the event that commits with a smaller one.
 *
 *     change + pending event, COMMIT ─► here: lock the counter, move pending events, number them, COMMIT ─► readers
 *
 * The lock orders the transactions that number events, also those of a control that is being replaced. So every event
 * with an id up to `last_id` is visible to each reader that sees that `last_id`, and ids have no gaps.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { sql } from 'kysely';
import type { Logger } from 'pino';
import { WakeSignal } from '../../lib/waiting/wake-signal.ts';
import type { Database } from '../db/database.ts';
import type { EventRow, PendingEventRow } from './event-tables.ts';
import { mergeRefusals } from './merge-refusals.ts';

/** Limit of one transaction. */
const MAX_BATCH = 1_000;
/**
 * Further refusals that a transaction takes of the sandboxes in its batch, whose next ones wait for a second. Below the
 * rate at which guests can make them, pending refusals would pile up.
 */
const MAX_REFUSALS = 10_000;
/** Finds events whose writers did not wake the loop, and those that another control has numbered. */
const POLL_MS = 1_000;
/** A sandbox has one event of refused connections in this time. */
const REFUSALS_MS = 1_000;

export interface EventSequencerParts {
  db: Database;
  /** Called in the transaction that numbers events, and again after its commit. */
  subscriber?: EventSubscriber;
  clock: { wallMs: () => number };
  log: Logger;
}

/** Gets each event exactly once. */
export interface EventSubscriber {
  take: (transaction: Database, rows: readonly EventRow[]) => Promise<void>;
  committed: () => void;
}

export class EventSequencer implements AsyncDisposable {
  readonly #parts: EventSequencerParts;
  readonly #stop = new AbortController();
  readonly #watchers = new Map<string, Set<() => void>>();
  readonly #news = new WakeSignal();
  /** Watchers know of all events up to this id; undefined while there are none. */
  #toldThrough: number | undefined;
  /** Sandboxes whose refusals wait, and until when, in milliseconds of the process. */
  readonly #held = new Map<string, number>();
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: EventSequencerParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#loop = this.#run();
  }

  /** Call after a transaction with events. */
  wake(): void {
    this.#news.wake();
  }

  /** Calls `listener` when an organization may have new events, until the result is disposed. */
  watch(organizationId: string, listener: () => void): Disposable {
    const watchers = this.#watchers.get(organizationId) ?? new Set();
    this.#watchers.set(organizationId, watchers.add(listener));
    return {
      [Symbol.dispose]: () => {
        watchers.delete(listener);
        if (watchers.size === 0 && this.#watchers.get(organizationId) === watchers)
          this.#watchers.delete(organizationId);
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      this.#news.reset();
      try {
        if (await this.#numberSome()) continue;
        await this.#tellOfOthers();
      } catch (error) {
        this.#parts.log.warn({ err: error }, 'events get their ids later; control tries again');
        // The answer to a commit may be lost.
        for (const watchers of this.#watchers.values()) tell(watchers);
        await delay(POLL_MS, undefined, { signal }).catch(() => undefined);
      }
      await this.#news.pause(this.#restMs, signal);
    }
  }

  /** Until held refusals may be numbered, or events whose writers did not wake the loop. */
  get #restMs(): number {
    const now = performance.now();
    return Math.max(1, Math.min(POLL_MS, ...[...this.#held.values()].map((until) => until - now)));
  }

  /** Returns whether there were any. */
  async #numberSome(): Promise<boolean> {
    const now = performance.now();
    for (const [sandboxId, until] of this.#held) if (until <= now) this.#held.delete(sandboxId);
    const held = [...this.#held.keys()];
    if (!(await hasPending(this.#parts.db, held))) return false;
    const numbered = await this.#parts.db
      .transaction()
      .execute((transaction) => this.#move(transaction, held));
    for (const { type, sandbox_id } of numbered)
      if (type === 'network.blocked' && sandbox_id !== null)
        this.#held.set(sandbox_id, performance.now() + REFUSALS_MS);
    this.#parts.subscriber?.committed();
    for (const id of new Set(numbered.map((row) => row.organization_id))) tell(this.#watchers.get(id));
    const [first, last] = [numbered.at(0), numbered.at(-1)];
    if (last !== undefined && first?.id === (this.#toldThrough ?? NaN) + 1) this.#toldThrough = last.id;
    return numbered.length > 0;
  }

  /** Wakes the watchers of organizations whose events another control has numbered. */
  async #tellOfOthers(): Promise<void> {
    if (this.#watchers.size === 0) {
      this.#toldThrough = undefined;
      return;
    }
    const { db } = this.#parts;
    const counter = await db.selectFrom('event_counter').select('last_id').executeTakeFirst();
    const [from, lastId] = [this.#toldThrough, counter?.last_id ?? 0];
    // What was numbered before the first look may be unknown to a watcher that came before.
    if (from === undefined) for (const watchers of this.#watchers.values()) tell(watchers);
    else if (from < lastId)
      for (const id of await listOrganizations(db, from, [...this.#watchers.keys()]))
        tell(this.#watchers.get(id));
    this.#toldThrough = lastId;
  }

  async #move(transaction: Database, held: readonly string[]): Promise<EventRow[]> {
    const last_id = await lockCounter(transaction);
    const taken = await takePending(transaction, held);
    if (taken.length === 0) return [];
    const pending = mergeRefusals([...taken, ...(await takeRefusals(transaction, taken))]);
    const numbered_at = this.#parts.clock.wallMs();
    const numbered = pending.map((row, index) =>
      Object.assign({}, row, { id: last_id + 1 + index, numbered_at }),
    );
    await insertNumbered(transaction, numbered);
    await this.#parts.subscriber?.take(transaction, numbered);
    await transaction
      .updateTable('event_counter')
      .set({ last_id: last_id + numbered.length })
      .execute();
    return numbered;
  }
}

function tell(watchers: ReadonlySet<() => void> = new Set()): void {
  for (const listener of watchers) listener();
}

/** Returns those of the organizations that have events after an id. */
async function listOrganizations(db: Database, after: number, among: readonly string[]): Promise<string[]> {
  const rows = await db
    .selectFrom('events')
    .select('organization_id')
    .distinct()
    .where('id', '>', after)
    .where(sql<boolean>`organization_id = ANY(${[...among]}::text[])`)
    .execute();
  return rows.map((row) => row.organization_id);
}

/** Locks the counter until the end of the transaction, and returns the last id. */
async function lockCounter(transaction: Database): Promise<number> {
  const { last_id } = await transaction
    .insertInto('event_counter')
    .values({ last_id: 0 })
    .onConflict((conflict) =>
      conflict.column('is_only').doUpdateSet({ last_id: (row) => row.ref('event_counter.last_id') }),
    )
    .returning('last_id')
    .executeTakeFirstOrThrow();
  return last_id;
}

const isFree = (held: readonly string[]) =>
  sql<boolean>`(type = 'network.blocked' AND sandbox_id = ANY(${[...held]}::text[])) IS NOT TRUE`;

async function hasPending(db: Database, held: readonly string[]): Promise<boolean> {
  const row = await db
    .selectFrom('pending_events')
    .select('ordinal')
    .where(isFree(held))
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}

/** Takes the oldest pending events, in the order in which they were written. */
async function takePending(transaction: Database, held: readonly string[]): Promise<PendingEventRow[]> {
  const rows = await transaction
    .deleteFrom('pending_events')
    .where('ordinal', 'in', (oldest) =>
      oldest
        .selectFrom('pending_events')
        .select('ordinal')
        .where(isFree(held))
        .orderBy('ordinal')
        .limit(MAX_BATCH),
    )
    .returningAll()
    .execute();
  return rows.sort((one, other) => one.ordinal - other.ordinal);
}

/** Takes the refusals that the sandboxes of these rows have besides them. */
async function takeRefusals(
  transaction: Database,
  rows: readonly PendingEventRow[],
): Promise<PendingEventRow[]> {
  const ids = rows.flatMap(({ type, sandbox_id }) =>
    type === 'network.blocked' && sandbox_id !== null ? [sandbox_id] : [],
  );
  if (ids.length === 0) return [];
  return transaction
    .deleteFrom('pending_events')
    .where('ordinal', 'in', (oldest) =>
      oldest
        .selectFrom('pending_events')
        .select('ordinal')
        .where('type', '=', 'network.blocked')
        .where(sql<boolean>`sandbox_id = ANY(${[...new Set(ids)]}::text[])`)
        .orderBy('ordinal')
        .limit(MAX_REFUSALS),
    )
    .returningAll()
    .execute();
}

/** One text for any number of rows, so that PostgreSQL need not parse a new statement for each number. */
async function insertNumbered(transaction: Database, rows: readonly EventRow[]): Promise<void> {
  const column = <K extends keyof EventRow>(name: K): EventRow[K][] => rows.map((row) => row[name]);
  const labels = rows.map((row) => JSON.stringify(row.labels));
  await sql`
    INSERT INTO events (id, organization_id, team_id, sandbox_id, type, at, labels, data, numbered_at)
    SELECT * FROM unnest(
      ${column('id')}::bigint[], ${column('organization_id')}::text[], ${column('team_id')}::text[],
      ${column('sandbox_id')}::text[], ${column('type')}::text[], ${column('at')}::bigint[],
      ${labels}::jsonb[], ${column('data')}::text[], ${column('numbered_at')}::bigint[])`.execute(
    transaction,
  );
}
