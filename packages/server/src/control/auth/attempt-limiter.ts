import { AppError } from '@coppice/contract';
import type { Share } from '../limits/share.ts';

/** Limit of remembered names; beyond it the oldest is forgotten. */
const MAX_NAMES = 100_000;

export interface AttemptLimit {
  /** Plural noun for the attempts, for the message. */
  what: string;
  limit: number;
  /** Of the limit, which all controls enforce together. */
  share: Share;
  windowMs: number;
}

interface Count {
  attempts: number;
  endsAt: number;
}

/** Counts attempts by name, for example an address, in windows that begin with the first attempt. Memory is bounded. */
export class AttemptLimiter {
  readonly #options: AttemptLimit;
  readonly #now: () => number;
  readonly #counts = new Map<string, Count>();

  constructor(options: AttemptLimit, now: () => number = Date.now) {
    this.#options = options;
    this.#now = now;
  }

  /** Throws `rate_limited` after too many attempts. */
  assertBelow(name: string): void {
    const { what, limit, share } = this.#options;
    const count = this.#find(name);
    if (count === undefined || count.attempts < share(limit)) return;
    const retryAfterS = Math.max(1, Math.ceil((count.endsAt - this.#now()) / 1000));
    throw new AppError('rate_limited', `too many ${what}; try again in ${retryAfterS} s`, {
      details: { retryAfterS },
    });
  }

  add(name: string): void {
    const count = this.#find(name);
    if (count !== undefined) {
      count.attempts += 1;
      return;
    }
    for (const oldest of this.#counts.keys()) {
      if (this.#counts.size < MAX_NAMES) break;
      this.#counts.delete(oldest);
    }
    this.#counts.set(name, { attempts: 1, endsAt: this.#now() + this.#options.windowMs });
  }

  /**
   * Counts an attempt, or throws as {@link assertBelow}. Call it before the attempt, so that parallel ones count, too.
   */
  take(name: string): void {
    this.assertBelow(name);
    this.add(name);
  }

  /** Uncounts an attempt that turned out to be right. */
  giveBack(name: string): void {
    const count = this.#find(name);
    if (count !== undefined) count.attempts -= 1;
  }

  #find(name: string): Count | undefined {
    const count = this.#counts.get(name);
    if (count === undefined || count.endsAt > this.#now()) return count;
    this.#counts.delete(name);
    return undefined;
  }
}
