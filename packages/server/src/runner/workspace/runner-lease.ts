/**
 * The lease with which this runner holds all of its disks: an object that it renews. Another service that shares the store
 * may take a disk of which the lease was not renewed for its whole time. Before that, this runner holds its VMs, so that no
 * guest gets an answer to a write that would then be lost.
 */
import { hostMoment } from '../../lib/host-clock.ts';
import type { Logger } from 'pino';
import { Nothing } from './block-requests.ts';
import type { BlockServer } from './block-server.ts';

export const LEASE_MS = 60_000;
const RENEW_EVERY_MS = 5000;
const RENEW_TIMEOUT_MS = 10_000;
/** Leaves time until the lease ends for a pause of this process and for stopping the VMs. */
const HOLD_AFTER_MS = 40_000;

export interface RunnerLeaseOptions {
  server: Pick<BlockServer, 'ask'>;
  runner: string;
  /** Whether there is anything to hold. */
  isNeeded: () => boolean;
  /** The lease may end soon. */
  onDoubt: () => Promise<void>;
  /** The lease is renewed after a doubt; it may have been broken meanwhile. */
  onCertain: () => Promise<void>;
  log: Logger;
}

export class RunnerLease implements Disposable {
  readonly #options: RunnerLeaseOptions;
  #renewedAtMs = hostMoment().bootMs;
  #isInDoubt = false;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: RunnerLeaseOptions) {
    this.#options = options;
    this.#schedule();
  }

  /** Renews the lease. Required before a disk is taken. */
  async renew(): Promise<void> {
    const { server, runner } = this.#options;
    const askedAtMs = hostMoment().bootMs;
    await server.ask({ op: 'renew', runner }, Nothing, { timeoutMs: RENEW_TIMEOUT_MS });
    this.#renewedAtMs = askedAtMs;
  }

  /** Treats the lease as one that may have ended: this process did not run for a while. */
  doubt(): void {
    this.#isInDoubt = true;
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  #schedule(): void {
    this.#timer = setTimeout(() => void this.#keep(), RENEW_EVERY_MS);
    this.#timer.unref();
  }

  async #keep(): Promise<void> {
    const { isNeeded, log } = this.#options;
    try {
      if (isNeeded()) await this.#renewOrDoubt();
    } catch (error) {
      log.warn({ err: error }, 'the lease of the disks was not renewed');
    }
    if (!this.#isClosed) this.#schedule();
  }

  async #renewOrDoubt(): Promise<void> {
    const { onDoubt, onCertain } = this.#options;
    if (hostMoment().bootMs - this.#renewedAtMs > HOLD_AFTER_MS) {
      this.#isInDoubt = true;
      await onDoubt();
    }
    await this.renew();
    if (!this.#isInDoubt) return;
    await onCertain();
    this.#isInDoubt = false;
  }
}
