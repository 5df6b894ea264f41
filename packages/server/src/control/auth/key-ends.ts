/**
 * Ends open requests whose API key is revoked, expires, or sees less than when they began: a person with the key of a
 * session may be an owner no more. Each request's key is checked when the request arrives. The keys of requests that
 * stay open are checked again, all keys in one query:
 *
 *   watch(key) ──► every 2 s: which watched keys are still active? ──► the signals of the others are aborted
 *
 * While the database does not answer, no request is ended.
 */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { Reach } from '../accounts/organizations/reach.ts';
import { listActiveKeys } from './api-key-store.ts';
import type { Database } from '../db/database.ts';

const CHECK_INTERVAL_MS = 2_000;

/** The key of an open request, and what it saw when the request began. */
export interface WatchedKey {
  apiKeyId: string;
  reach: Reach;
}

/** An open request. */
export interface KeyWatch extends Disposable {
  /** Aborted, with an AppError as its reason, when the key is no longer active. */
  signal: AbortSignal;
}

export class KeyEnds implements Disposable {
  readonly #db: Database;
  readonly #log: Logger;
  readonly #timer: NodeJS.Timeout;
  readonly #open = new Map<string, Map<AbortController, Reach>>();
  #isChecking = false;

  constructor(db: Database, log: Logger, intervalMs = CHECK_INTERVAL_MS) {
    this.#db = db;
    this.#log = log;
    this.#timer = setInterval(() => void this.#check(), intervalMs);
  }

  watch({ apiKeyId, reach }: WatchedKey): KeyWatch {
    const controller = new AbortController();
    const open = this.#open.get(apiKeyId) ?? new Map();
    this.#open.set(apiKeyId, open.set(controller, reach));
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
      for (const id of asked) this.#compare(id, active.get(id));
    } catch (error) {
      this.#log.debug({ err: error }, 'the keys of open streams could not be checked');
    } finally {
      this.#isChecking = false;
    }
  }

  #compare(apiKeyId: string, now: Reach | undefined): void {
    const open = this.#open.get(apiKeyId) ?? new Map<AbortController, Reach>();
    for (const [controller, reach] of open) {
      const reason = explainEnd(reach, now);
      if (reason === undefined) continue;
      controller.abort(new AppError('unauthorized', reason));
      open.delete(controller);
    }
    if (open.size === 0) this.#open.delete(apiKeyId);
  }
}

/** Undefined: the request may stay open. */
function explainEnd(then: Reach, now: Reach | undefined): string | undefined {
  if (now === undefined) return 'the API key was revoked or has expired';
  if (then.onlyTeamId === null && now.onlyTeamId !== null)
    return 'the API key no longer sees all teams; repeat the request for what it sees now';
  return undefined;
}
