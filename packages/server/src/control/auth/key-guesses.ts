/**
 * Guessed API keys. A key has 238 random bits and cannot be guessed; what is limited is the work that guesses make, by the
 * address that they come from:
 *
 *   key was good lately ──────────────────────────────► looked up
 *   else: address has failed too often ──► 429; has not ──► looked up ──► wrong: counted
 *
 * Many callers may share an address, behind a proxy for example: so a key that was good within the last hour is never
 * refused for what others did, and is looked up as ever, as it may be revoked by now.
 */
import { createHash } from 'node:crypto';
import { AppError } from '@coppice/contract';
import { toAddressBlock } from './address-block.ts';
import { AttemptLimiter } from './attempt-limiter.ts';
import type { Credential } from './authenticator.ts';

const WINDOW_MS = 60_000;
const GOOD_FOR_MS = 3_600_000;
const MAX_GOOD = 50_000;

export class KeyGuesses {
  readonly #failures: AttemptLimiter;
  readonly #now: () => number;
  /** Digests of credentials, with when they were last good; the one that was good longest ago comes first. */
  readonly #good = new Map<string, number>();

  constructor(failuresPerMinute: number, now: () => number = Date.now) {
    const what = 'wrong API keys from your address';
    this.#failures = new AttemptLimiter({ what, limit: failuresPerMinute, windowMs: WINDOW_MS }, now);
    this.#now = now;
  }

  /** Runs `authenticate`, unless the address has failed too often: then AppError `rate_limited`. */
  async check<T>(address: string, credential: Credential, authenticate: () => Promise<T>): Promise<T> {
    const shown = 'ticket' in credential ? credential.ticket : credential.authorization;
    // Who shows nothing guesses nothing.
    if (shown === undefined) return authenticate();
    const digest = createHash('sha256').update(shown).digest('base64');
    const block = toAddressBlock(address);
    if (!this.#isGood(digest)) this.#failures.assertBelow(block);
    try {
      const result = await authenticate();
      this.#remember(digest);
      return result;
    } catch (error) {
      if (error instanceof AppError && error.code === 'unauthorized') {
        this.#good.delete(digest);
        this.#failures.add(block);
      }
      throw error;
    }
  }

  #isGood(digest: string): boolean {
    return (this.#good.get(digest) ?? -Infinity) > this.#now() - GOOD_FOR_MS;
  }

  #remember(digest: string): void {
    this.#good.delete(digest);
    this.#good.set(digest, this.#now());
    const oldest = this.#good.keys().next();
    if (this.#good.size > MAX_GOOD && oldest.done !== true) this.#good.delete(oldest.value);
  }
}
