/**
 * This process among the controls of the installation, in SQL. It owns runners as long as it renews its lease:
 *
 *     register ─► held ── not renewed in time ─► not held: nothing is written ── renewed ─► held
 *                                                   └── another control has taken its runners ─► `fenced`: it must end
 *
 * PostgreSQL's clock decides when a lease is over. Here the lease ends earlier, by the monotonic clock, so that a write that
 * has begun is made before another control may take over.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { sql } from 'kysely';
import { hintChange } from '../db/change-hints.ts';
import type { Database } from '../db/database.ts';
import { newControlId } from './control-id.ts';
import { DATABASE_NOW } from './database-time.ts';
import { LEADER, type Leadership } from './leadership.ts';

const RENEW_EVERY_MS = 3_000;
/** The present moment, and not that of the begin of the transaction, which waits for its turn. */
const STARTED_AT = sql<number>`(extract(epoch FROM clock_timestamp()) * 1000)::bigint`;
/** Between the end here and the end in SQL: more than the longest statement. */
const MARGIN_MS = 6_000;

export interface ControlLeaseOptions {
  /** Its statements are not held back by the lease. */
  db: Database;
  nodeId: string;
  version: string;
  /** For how long a control that does not renew its lease keeps it, by PostgreSQL's clock. */
  leaseMs: number;
  /** Whether no other control can be running: those that were there have ended. */
  isAlone?: boolean;
  log: Logger;
}

export class FencedError extends Error {
  constructor() {
    super('another control has taken the runners of this one, as it had not renewed its lease');
    this.name = 'FencedError';
  }
}

/** Counts as an unreachable database (database-error.ts): callers fail or try again. */
class LeaseOverError extends Error {
  readonly code = '57P03';

  constructor() {
    super('the lease of this control is over');
    this.name = 'LeaseOverError';
  }
}

export class ControlLease implements AsyncDisposable, Leadership {
  readonly id = newControlId();
  readonly #options: ControlLeaseOptions;
  readonly #stop = new AbortController();
  readonly #fenced = Promise.withResolvers<FencedError>();
  /** By the monotonic clock of this process. */
  #heldUntilMs = -Infinity;
  #renewalMs = 0;
  /** As of the last renewal. */
  #isFirst = false;
  #loop: Promise<void> = Promise.resolve();

  private constructor(options: ControlLeaseOptions) {
    this.#options = options;
  }

  /** Registers this process in place of earlier ones of its data directory, which have ended. */
  static async register(options: ControlLeaseOptions): Promise<ControlLease> {
    const lease = new ControlLease(options);
    await lease.#register();
    lease.#loop = lease.#run();
    return lease;
  }

  get isHeld(): boolean {
    return performance.now() < this.#heldUntilMs;
  }

  /** For how long this control may still use the database without a renewal. */
  get leftMs(): number {
    return Math.max(0, this.#heldUntilMs - performance.now());
  }

  /** How long the last renewal took. */
  get renewalMs(): number {
    return this.#renewalMs;
  }

  /** See leadership.ts. */
  get isLeading(): boolean {
    return this.#isFirst && this.isHeld;
  }

  /** Throws if the lease is not held. Call before a write. */
  assertHeld(): void {
    if (!this.isHeld) throw new LeaseOverError();
  }

  /** Tells other controls `host:port` at which they reach this one. */
  async publish(address: string): Promise<void> {
    await this.#options.db.updateTable('controls').set({ address }).where('id', '=', this.id).execute();
  }

  /** Tells other controls to give this one no more runners, as it is about to end. */
  async leave(): Promise<void> {
    const { db, log } = this.#options;
    await db
      .updateTable('controls')
      .set({ is_leaving: true })
      .where('id', '=', this.id)
      .execute()
      .catch((error: unknown) =>
        log.debug({ err: error }, 'other controls may still give runners to this one'),
      );
  }

  /** Resolves when another control has taken the runners of this one. */
  get fenced(): Promise<FencedError> {
    return this.#fenced.promise;
  }

  /** Gives the runners up at once, and tells the other controls. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#loop;
    this.#heldUntilMs = -Infinity;
    const { db, log } = this.#options;
    await db
      .transaction()
      .execute(async (transaction) => {
        await transaction.deleteFrom('controls').where('id', '=', this.id).execute();
        await hintChange(transaction, 'runners');
      })
      .catch((error: unknown) => log.debug({ err: error }, 'the lease of this control ends by itself'));
  }

  async #register(): Promise<void> {
    const { db, nodeId, version, isAlone = false } = this.#options;
    const askedAt = performance.now();
    await db.transaction().execute(async (transaction) => {
      // One after the other, so that each has a later time than those that may lead already.
      await sql`SELECT pg_advisory_xact_lock(hashtextextended('coppice-controls', 0))`.execute(transaction);
      const ended = transaction.deleteFrom('controls');
      await (isAlone ? ended : ended.where('node_id', '=', nodeId)).execute();
      await transaction
        .insertInto('controls')
        .values({
          id: this.id,
          node_id: nodeId,
          version,
          started_at: STARTED_AT,
          lease_until: this.#end,
        })
        .execute();
      const { rows } = await sql<{ leader: string }>`SELECT ${LEADER} AS leader`.execute(transaction);
      this.#isFirst = rows[0]?.leader === this.id;
    });
    this.#noteHeld(askedAt);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    for (;;) {
      await delay(RENEW_EVERY_MS, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      try {
        if (!(await this.#renew())) return this.#fenced.resolve(new FencedError());
      } catch (error) {
        this.#options.log.warn(
          { err: error },
          'the lease of this control was not renewed; control tries again',
        );
      }
    }
  }

  /** Returns false if another control has taken the runners. */
  async #renew(): Promise<boolean> {
    const askedAt = performance.now();
    const renewed = await this.#options.db
      .updateTable('controls')
      .set({ lease_until: this.#end })
      .where('id', '=', this.id)
      .where('is_fenced', '=', false)
      .returning(LEADER.as('leader'))
      .executeTakeFirst();
    this.#isFirst = renewed?.leader === this.id;
    if (renewed === undefined) return false;
    this.#noteHeld(askedAt);
    return true;
  }

  get #end() {
    return sql<number>`${DATABASE_NOW} + ${this.#options.leaseMs}::bigint`;
  }

  #noteHeld(askedAtMs: number): void {
    this.#renewalMs = performance.now() - askedAtMs;
    this.#heldUntilMs = askedAtMs + this.#options.leaseMs - MARGIN_MS;
  }
}
