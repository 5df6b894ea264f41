/**
 * Limits guesses of passwords for each account, from all addresses, and for each client address, at all accounts. Only
 * wrong passwords stay counted.
 */
import { toAddressBlock } from '../../auth/address-block.ts';
import { AttemptLimiter } from '../../auth/attempt-limiter.ts';
import type { Share } from '../../limits/share.ts';

const QUARTER_HOUR_MS = 900_000;
const HOUR_MS = 3_600_000;
const PER_ACCOUNT = 20;
const PER_ADDRESS = 100;
const SIGN_UPS_PER_ADDRESS = 30;

export class SignInLimits {
  readonly #accounts: AttemptLimiter;
  readonly #addresses: AttemptLimiter;
  readonly #signUps: AttemptLimiter;

  constructor(now: () => number, share: Share) {
    const passwords = { what: 'wrong passwords', share, windowMs: QUARTER_HOUR_MS };
    this.#accounts = new AttemptLimiter({ ...passwords, limit: PER_ACCOUNT }, now);
    this.#addresses = new AttemptLimiter({ ...passwords, limit: PER_ADDRESS }, now);
    const signUps = { what: 'sign-ups from your address', share, windowMs: HOUR_MS };
    this.#signUps = new AttemptLimiter({ ...signUps, limit: SIGN_UPS_PER_ADDRESS }, now);
  }

  /** Counts an attempt, which the caller gives back if the password was right. Throws `rate_limited` after too many. */
  takeSignIn(email: string, clientAddress: string): { giveBack: () => void } {
    const block = toAddressBlock(clientAddress);
    this.#addresses.assertBelow(block);
    this.#accounts.take(email);
    this.#addresses.take(block);
    return {
      giveBack: () => {
        this.#accounts.giveBack(email);
        this.#addresses.giveBack(block);
      },
    };
  }

  takeSignUp(clientAddress: string): void {
    this.#signUps.take(toAddressBlock(clientAddress));
  }
}
