/**
 * Ends what is open with an API key that is revoked or expires. Each request asks for its key when it comes; those that stay
 * open are asked again, all keys in one query:
 *
 *   watch(key) ──► every 2 s: which of the watched are still good? ──► signal of the others is aborted
 *
 * While the database does not answer nothing is known and nothing ended.
 */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { listActiveKeys } from './api-key-store.ts';
import type { Database } from '../db/database.ts';

const CHECK_INTERVAL_MS = 2_000;

/** Something open. */
export interface KeyWatch extends Disposable {
  /** Aborted, with an AppError as its reason, when the key is good no longer. */
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
      this.#log.debug({ err: error }, 'keys of open streams could not be looked at');
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
