/**
 * Tells the other controls at once that there is something new in SQL, by NOTIFY. Only a hint: it is lost while the connection is
 * broken, or behind a proxy that pools connections by transaction. So each listener also polls, and a hint only makes it look sooner.
 *
 *     control A ─ NOTIFY in its transaction ─ COMMIT ─► PostgreSQL ─► connection of control B ─► its listeners look
 */
import { setTimeout as delay } from 'node:timers/promises';
import { sql } from 'kysely';
import pg from 'pg';
import type { Logger } from 'pino';
import { stretched } from '../../lib/waiting/deadline.ts';
import type { Database } from './database.ts';
import type { InstallationGuard } from './installation-guard.ts';

const CHANNEL = 'coppice_changes';
const CONNECT_DEADLINE_MS = 5_000;
const RETRY_MS = 1_000;

export type ChangeSubject = 'deliveries' | 'events' | 'runners' | 'secrets';

export interface ChangeHintsOptions {
  connection: pg.PoolConfig;
  guard: InstallationGuard;
  log: Logger;
}

/** Sends a hint when the transaction is committed. PostgreSQL merges equal ones of a transaction. */
export async function hintChange(transaction: Database, subject: ChangeSubject): Promise<void> {
  await sql`SELECT pg_notify(${CHANNEL}, ${subject})`.execute(transaction);
}

export class ChangeHints implements AsyncDisposable {
  readonly #options: ChangeHintsOptions;
  readonly #stop = new AbortController();
  readonly #listeners = new Map<string, Set<() => void>>();
  #client: pg.Client | undefined;
  #loop: Promise<void> = Promise.resolve();

  constructor(options: ChangeHintsOptions) {
    this.#options = options;
  }

  start(): void {
    this.#loop = this.#run();
  }

  /** Calls `listener` for each change of a control, this one included, until the result is disposed. */
  on(subject: ChangeSubject, listener: () => void): Disposable {
    const listeners = this.#listeners.get(subject) ?? new Set();
    this.#listeners.set(subject, listeners.add(listener));
    return { [Symbol.dispose]: () => void listeners.delete(listener) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#client?.end().catch(() => undefined);
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        await this.#listen();
      } catch (error) {
        this.#options.log.debug({ err: error }, 'changes of other controls are found by polling for now');
      }
      await delay(RETRY_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  /** Resolves when the connection has ended. */
  async #listen(): Promise<void> {
    const { connection, guard, log } = this.#options;
    const client = new pg.Client({
      ...connection,
      keepAlive: true,
      connectionTimeoutMillis: stretched(CONNECT_DEADLINE_MS),
    });
    const ended = new Promise<void>((resolve) => client.once('end', () => resolve()));
    client.on('error', (error) => log.debug({ err: error }, 'the connection for hints broke'));
    client.on('notification', ({ payload }) => this.#tell(payload));
    this.#client = client;
    try {
      await client.connect();
      await guard.check(client);
      await client.query(`LISTEN ${CHANNEL}`);
      // There may have been changes before.
      for (const subject of this.#listeners.keys()) this.#tell(subject);
      if (this.#stop.signal.aborted) return;
      await ended;
    } finally {
      this.#client = undefined;
      await client.end().catch(() => undefined);
    }
  }

  #tell(subject: string | undefined): void {
    for (const listener of this.#listeners.get(subject ?? '') ?? []) listener();
  }
}
