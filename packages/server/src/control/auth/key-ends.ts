/**
 * Ends open requests whose API key is revoked or expires. Each request's key is checked when the request arrives. The
 * keys of requests that stay open are checked again, all keys in one query:
 *
 *   watch(key) ──► every 2 s: which watched keys are still active? ──► the signals of the others are aborted
 *
 * While the database does not answer, no request is ended.
 */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { listActiveKeys } from './api-key-store.ts';
import type { Database } from '../db/database.ts';

const CHECK_INTERVAL_MS = 2_000;

/** An open request. */
export interface KeyWatch extends Disposable {
  /** Aborted, with an AppError as its reason, when the key is no longer active. */
  signal: AbortSignal;
}

export class KeyEnds implements Disposable {
  readonly #db: Database;
  readonly #log: Logger;
  readonly #timer: NodeJS.Timeout;
  readonly #open = new Map<string, Set<AbortController>>();
  #isChecking = false;

  constructor(db: Database, log: Logger, intervalMs = CHECK_INTERVAL_MS) {
    this.#db = db;
    this.#log = log;
    this.#timer = setInterval(() => void this.#check(), intervalMs);
  }

  watch(apiKeyId: string): KeyWatch {
    const controller = new AbortController();
    const open = this.#open.get(apiKeyId) ?? new Set();
    this.#open.set(apiKeyId, open.add(controller));
    return {
      signal: controller.signal,
      [Symbol.dispose]: () => {
        open.delete(controller);
        if (open.size === 0 && this.#open.get(apiKeyId) === open) this.#open.delete(apiKeyId);
      },
    };
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  async #check(): Promise<void> {
    if (this.#open.size === 0 || this.#isChecking) return;
    this.#isChecking = true;
    try {
      const asked = [...this.#open.keys()];
      const active = await listActiveKeys(this.#db, asked);
      for (const id of asked) if (!active.has(id)) this.#end(id);
    } catch (error) {
      this.#log.debug({ err: error }, 'the keys of open streams could not be checked');
    } finally {
      this.#isChecking = false;
    }
  }

  #end(apiKeyId: string): void {
    const reason = new AppError('unauthorized', 'the API key was revoked or has expired');
    for (const controller of this.#open.get(apiKeyId) ?? []) controller.abort(reason);
    this.#open.delete(apiKeyId);
  }
}
