/**
 * Limits guesses of API keys. A key has 238 random bits and cannot be guessed; the limit is on the work that guesses
 * cause, by the address that they come from:
 *
 *   key was valid recently ────────────────────────────► looked up
 *   else: address failed too often ──► 429; otherwise ──► looked up ──► wrong: counted
 *
 * Many callers may share an address, for example behind a proxy. So a key that was valid within the last hour is never
 * refused because of other callers. It is still looked up, as it may be revoked by now. A link to a file that this
 * service has signed is never a guess: its holders did not choose when it ends.
 */
import { createHash } from 'node:crypto';
import { AppError } from '@coppice/contract';
import { toAddressBlock } from './address-block.ts';
import { AttemptLimiter } from './attempt-limiter.ts';
import type { Credential } from './authenticator.ts';
import { isOtherRegion } from './other-region.ts';
import type { Share } from '../limits/share.ts';

const WINDOW_MS = 60_000;
const GOOD_FOR_MS = 3_600_000;
const MAX_GOOD = 50_000;

export interface KeyGuessesOptions {
  failuresPerMinute: number;
  share: Share;
  now?: () => number;
}

export class KeyGuesses {
  readonly #failures: AttemptLimiter;
  readonly #now: () => number;
  /** Digests of credentials and the time when each was last valid, oldest first. */
  readonly #good = new Map<string, number>();

  constructor({ failuresPerMinute: limit, share, now = Date.now }: KeyGuessesOptions) {
    const what = 'wrong API keys from your address';
    this.#failures = new AttemptLimiter({ what, limit, share, windowMs: WINDOW_MS }, now);
    this.#now = now;
  }

  /** Runs `authenticate`. Throws `rate_limited` instead if the address has failed too often. */
  async check<T>(address: string, credential: Credential, authenticate: () => Promise<T>): Promise<T> {
    const shown = textOf(credential);
    // A request without a credential is no guess, nor is a signed link.
    if (shown === undefined) return authenticate();
    const digest = createHash('sha256').update(shown).digest('base64');
    const block = toAddressBlock(address);
    if (!this.#isGood(digest)) this.#failures.assertBelow(block);
    try {
      const result = await authenticate();
      this.#remember(digest);
      return result;
    } catch (error) {
      // That of another region is refused without a look-up.
      if (error instanceof AppError && error.code === 'unauthorized' && !isOtherRegion(error)) {
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

function textOf(credential: Credential): string | undefined {
  if ('ticket' in credential) return credential.ticket;
  if ('link' in credential) return credential.isSigned ? undefined : credential.link;
  return credential.authorization;
}
