/**
 * Gives committed events their ids. An id from a sequence would not do: transactions commit in another order than they
 * take numbers, and a reader that has passed a number would never see the event that commits with a smaller one.
 *
 *     change + pending event, COMMIT ─► here: lock the counter, move pending events, number them, COMMIT ─► readers
 *
 * The lock orders the transactions that number events, also those of other controls. So every event with an id up to
 * `last_id` is visible to each reader that sees that `last_id`, and ids have no gaps. Each control numbers what it finds, but only
 * the leading one merges and numbers refused connections. Readers here are also woken for events that other controls have numbered.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { sql, type RawBuilder } from 'kysely';
import type { Logger } from 'pino';
import { WakeSignal } from '../../lib/waiting/wake-signal.ts';
import { hintChange } from '../db/change-hints.ts';
import type { Database } from '../db/database.ts';
import type { Leadership } from '../ownership/leadership.ts';
import type { EventRow, PendingEventRow } from './event-tables.ts';
import { mergeRefusals } from './merge-refusals.ts';
import { NumberedElsewhere } from './numbered-elsewhere.ts';

/** Limit of one transaction. */
const MAX_BATCH = 1_000;
/**
 * Further refusals that a transaction takes of the sandboxes in its batch, whose next ones wait for a second. Below the
 * rate at which guests can make them, pending refusals would pile up.
 */
const MAX_REFUSALS = 10_000;
/** Finds events whose writers did not wake the loop. */
const POLL_MS = 1_000;
/** A sandbox has one event of refused connections in this time. */
const REFUSALS_MS = 1_000;

export interface EventSequencerParts {
  db: Database;
  leadership: Leadership;
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
  /** Sandboxes whose refusals wait, and until when, in milliseconds of the process. */
  readonly #held = new Map<string, number>();
  readonly #elsewhere: NumberedElsewhere;
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: EventSequencerParts) {
    this.#parts = parts;
    this.#elsewhere = new NumberedElsewhere(parts.db);
  }

  start(): void {
    this.#loop = this.#run();
  }

  /** Call after a transaction with events, and when another control has numbered some. */
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

  /** Wakes readers for events that other controls have numbered. */
  async #tellOfOthers(): Promise<void> {
    if (this.#watchers.size === 0) return this.#elsewhere.forget();
    const news = await this.#elsewhere.look();
    for (const id of news === 'all' ? this.#watchers.keys() : news) tell(this.#watchers.get(id));
  }

  /** Returns whether there were any. */
  async #numberSome(): Promise<boolean> {
    const now = performance.now();
    for (const [sandboxId, until] of this.#held) if (until <= now) this.#held.delete(sandboxId);
    const free = this.#parts.leadership.isLeading ? isFree([...this.#held.keys()]) : isNoRefusal();
    if (!(await hasPending(this.#parts.db, free))) return false;
    const numbered = await this.#parts.db
      .transaction()
      .execute((transaction) => this.#move(transaction, free));
    for (const { type, sandbox_id } of numbered)
      if (type === 'network.blocked' && sandbox_id !== null)
        this.#held.set(sandbox_id, performance.now() + REFUSALS_MS);
    const [first] = numbered;
    if (first !== undefined) this.#elsewhere.skipOwn(first.id - 1, numbered.at(-1)?.id ?? first.id);
    this.#parts.subscriber?.committed();
    for (const id of new Set(numbered.map((row) => row.organization_id))) tell(this.#watchers.get(id));
    return numbered.length > 0;
  }

  async #move(transaction: Database, free: Free): Promise<EventRow[]> {
    const last_id = await lockCounter(transaction);
    const taken = await takePending(transaction, free);
    if (taken.length === 0) return [];
    const pending = mergeRefusals([...taken, ...(await takeRefusals(transaction, taken))]);
    const numbered_at = this.#parts.clock.wallMs();
    const numbered = pending.map((row, index) =>
      Object.assign({}, row, { id: last_id + 1 + index, numbered_at }),
    );
    await insertNumbered(transaction, numbered);
    await this.#parts.subscriber?.take(transaction, numbered);
    await hintChange(transaction, 'events');
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

/** Which pending events may be numbered now. */
type Free = RawBuilder<boolean>;

const isFree = (held: readonly string[]): Free =>
  sql<boolean>`(type = 'network.blocked' AND sandbox_id = ANY(${[...held]}::text[])) IS NOT TRUE`;

const isNoRefusal = (): Free => sql<boolean>`type <> 'network.blocked'`;

async function hasPending(db: Database, free: Free): Promise<boolean> {
  const row = await db.selectFrom('pending_events').select('ordinal').where(free).limit(1).executeTakeFirst();
  return row !== undefined;
}

/** Takes the oldest pending events, in the order in which they were written. */
async function takePending(transaction: Database, free: Free): Promise<PendingEventRow[]> {
  const rows = await transaction
    .deleteFrom('pending_events')
    .where('ordinal', 'in', (oldest) =>
      oldest.selectFrom('pending_events').select('ordinal').where(free).orderBy('ordinal').limit(MAX_BATCH),
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
