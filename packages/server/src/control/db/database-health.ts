/**
 * Checks over a connection of its own whether the database can be reached: the pool's connections may lead to a server
 * that a new connection would not find. Callers are anonymous, so an answer serves all calls within a second, and there
 * is one such connection at a time.
 */
import { AppError } from '@coppice/contract';
import pg from 'pg';
import type { Logger } from 'pino';
import { stretched, withDeadline } from '../../lib/waiting/deadline.ts';
import { ForeignDatabaseError, type InstallationGuard } from './installation-guard.ts';

const DEADLINE_MS = 3_000;
const FRESH_MS = 1_000;

export interface DatabaseHealthOptions {
  connection: pg.PoolConfig;
  guard: InstallationGuard;
  log: Logger;
}

export class DatabaseHealth {
  readonly #options: DatabaseHealthOptions;
  #answer: Promise<void> | undefined;
  /** The `performance.now()` at which the answer is too old; infinite while it is awaited. */
  #staleAtMs = 0;

  constructor(options: DatabaseHealthOptions) {
    this.#options = options;
  }

  /** Throws `unavailable`, with the cause in its message, if the database cannot be reached. */
  check(): Promise<void> {
    if (this.#answer !== undefined && performance.now() < this.#staleAtMs) return this.#answer;
    const noteAge = (): void => {
      this.#staleAtMs = performance.now() + FRESH_MS;
    };
    this.#staleAtMs = Infinity;
    this.#answer = this.#ask().finally(noteAge);
    return this.#answer;
  }

  async #ask(): Promise<void> {
    const { connection, guard, log } = this.#options;
    const client = new pg.Client({
      ...connection,
      connectionTimeoutMillis: stretched(DEADLINE_MS),
      query_timeout: stretched(DEADLINE_MS),
    });
    client.on('error', (error) => log.debug({ err: error }, 'the connection of a health check broke'));
    const connected = client.connect().then(() => guard.check(client));
    try {
      await withDeadline('the answer of the database', DEADLINE_MS, connected);
    } catch (error) {
      throw new AppError('unavailable', describe(error), { cause: error });
    } finally {
      client.end().catch((error: unknown) => log.debug({ err: error }, 'a health check did not end well'));
    }
  }
}

function describe(error: unknown): string {
  return error instanceof ForeignDatabaseError ? error.message : 'the database does not answer';
}
