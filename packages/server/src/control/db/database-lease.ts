/**
 * Allows only one control on a database, or only controls that reach each other and so can share it. One that is alone
 * would not find the sandboxes of the others. The lease is a PostgreSQL lock that belongs to one connection, exclusive
 * for a control that is alone. PostgreSQL releases it whenever that connection ends.
 *
 *     acquire ── granted ─► held ── connection lost ─► not held: requests get 503 ── granted again ─► held
 *        └── another has it ─► refused                        └── another has it ─► `taken`: control must end
 */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { Logger } from 'pino';
import type { InstallationGuard } from './installation-guard.ts';
import { stretched } from '../../lib/waiting/deadline.ts';

/** The name of the lock within its database: "coppice" in ASCII. */
const LOCK_ID = '27988551407330149';
const QUERY_DEADLINE_MS = 5_000;
const RETRY_MS = 250;

export interface LeaseOptions {
  connection: pg.PoolConfig;
  guard: InstallationGuard;
  log: Logger;
  /** How long to wait for another's lock: PostgreSQL notices late if its holder was killed on another machine. */
  patienceMs: number;
  /** Whether other controls may share the database. */
  isShared?: boolean;
}

export class DatabaseTakenError extends Error {
  constructor() {
    super(
      'another control uses this database: stop it, give each data directory a database of its own (DATABASE_URL), or let all of them share it (COPPICE_INTERNAL_LISTEN for each)',
    );
    this.name = 'DatabaseTakenError';
  }
}

/** Counts as an unreachable database (database-error.ts): callers fail or try again. */
class NotHeldError extends Error {
  readonly code = '57P03';

  constructor() {
    super('the lease of the database is not held');
    this.name = 'NotHeldError';
  }
}

export class DatabaseLease implements AsyncDisposable {
  readonly #options: LeaseOptions;
  readonly #taken = Promise.withResolvers<DatabaseTakenError>();
  readonly #stop = new AbortController();
  #client: pg.Client | undefined;

  private constructor(options: LeaseOptions) {
    this.#options = options;
  }

  /** Throws {@link DatabaseTakenError} if another control still has the lease after `patienceMs`. */
  static async acquire(options: LeaseOptions): Promise<DatabaseLease> {
    const lease = new DatabaseLease(options);
    const end = performance.now() + options.patienceMs;
    while (!(await lease.#try())) {
      if (performance.now() > end) throw new DatabaseTakenError();
      await delay(RETRY_MS);
    }
    return lease;
  }

  get isHeld(): boolean {
    return this.#client !== undefined;
  }

  /**
   * Throws if the lease is not held. Call before using a connection: another control may be about to write the records.
   */
  assertHeld(): void {
    if (!this.isHeld) throw new NotHeldError();
  }

  /** Resolves when the lease is lost and another control has it. */
  get taken(): Promise<DatabaseTakenError> {
    return this.#taken.promise;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    const client = this.#client;
    this.#client = undefined;
    await client?.end();
  }

  /** Returns false if another control has the lease. Throws if the database does not answer. */
  async #try(): Promise<boolean> {
    const client = new pg.Client({
      ...this.#options.connection,
      keepAlive: true,
      connectionTimeoutMillis: stretched(QUERY_DEADLINE_MS),
      query_timeout: stretched(QUERY_DEADLINE_MS),
    });
    client.on('error', (error) =>
      this.#options.log.debug({ err: error }, 'the connection of the lease broke'),
    );
    await client.connect();
    try {
      await this.#options.guard.check(client);
      const answer = await client.query<{ granted: boolean }>(
        `SELECT ${this.#tryLock}(${LOCK_ID}) AS granted`,
      );
      if (answer.rows[0]?.granted === true && !this.#stop.signal.aborted) {
        this.#hold(client);
        return true;
      }
    } catch (error) {
      void client.end().catch(() => undefined);
      throw error;
    }
    await client.end();
    return false;
  }

  get #tryLock(): string {
    return this.#options.isShared === true ? 'pg_try_advisory_lock_shared' : 'pg_try_advisory_lock';
  }

  #hold(client: pg.Client): void {
    this.#client = client;
    client.once('end', () => {
      if (this.#client !== client) return;
      this.#client = undefined;
      this.#options.log.warn('the lease of the database is lost; nothing is served until it is back');
      void this.#regain();
    });
  }

  async #regain(): Promise<void> {
    const { signal } = this.#stop;
    let refusedSince: number | undefined;
    while (!signal.aborted && !this.isHeld) {
      try {
        if (await this.#try()) return this.#options.log.info('the lease of the database is back');
        refusedSince ??= performance.now();
        if (performance.now() - refusedSince > this.#options.patienceMs)
          return this.#taken.resolve(new DatabaseTakenError());
      } catch (error) {
        this.#options.log.debug({ err: error }, 'the database does not answer; the lease is requested again');
      }
      await delay(RETRY_MS, undefined, { signal }).catch(() => undefined);
    }
  }
}
