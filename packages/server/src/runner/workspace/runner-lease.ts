/**
 * The lease with which this runner holds all of its disks: an object that it renews. Another service that shares the store
 * may take a disk of which the lease was not renewed for its whole time. Before that, this runner holds its VMs, so that no
 * guest gets an answer to a write that would then be lost.
 */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { writeAtomically } from '../../lib/files/durable-file.ts';
import { hostMoment } from '../../lib/host-clock.ts';
import type { Logger } from 'pino';
import { Nothing } from './block-requests.ts';
import type { BlockServer } from './block-server.ts';

export const LEASE_MS = 60_000;
const CHECK_EVERY_MS = 500;
const RENEW_EVERY_MS = 5000;
const RENEW_TIMEOUT_MS = 10_000;
/** Leaves time until the lease ends for a pause of this process and for stopping the VMs. */
const HOLD_AFTER_MS = 40_000;

/** When an earlier process of this runner renewed the lease. */
const Renewed = z.object({ boot_id: z.string(), boot_ms: z.number() });

export interface RunnerLeaseOptions {
  server: Pick<BlockServer, 'ask'>;
  runner: string;
  /** File with the time of the last renewal, for the next process. */
  path: string;
  /** Whether there is anything to hold. */
  isNeeded: () => boolean;
  /** The lease may end soon. Repeated until it is renewed. */
  onDoubt: () => Promise<void>;
  /** The lease is renewed after a doubt; it may have been broken meanwhile. */
  onCertain: () => Promise<void>;
  log: Logger;
}

export class RunnerLease implements Disposable {
  readonly #options: RunnerLeaseOptions;
  /** -Infinity if it is not known. */
  #renewedAtMs: number;
  #askedAtMs = -Infinity;
  #isInDoubt = false;
  #isKeeping = false;
  #isDoubting = false;
  readonly #timer: NodeJS.Timeout;

  constructor(options: RunnerLeaseOptions) {
    this.#options = options;
    this.#renewedAtMs = readRenewed(options.path);
    this.#timer = setInterval(() => this.#check(), CHECK_EVERY_MS);
    this.#timer.unref();
  }

  /** Renews the lease. Required before a disk is taken. */
  async renew(): Promise<void> {
    const { server, runner } = this.#options;
    const askedAtMs = hostMoment().bootMs;
    await server.ask({ op: 'renew', runner }, Nothing, { timeoutMs: RENEW_TIMEOUT_MS });
    this.#renewedAtMs = Math.max(this.#renewedAtMs, askedAtMs);
    this.#noteRenewed();
  }

  /** Treats the lease as one that may have been broken: this process did not run for a while. Checks it at once. */
  doubt(): void {
    this.#isInDoubt = true;
    queueMicrotask(() => this.#check());
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  /** The guests are held in time even if a renewal is waiting for an answer, and a guest that is not held delays none. */
  #check(): void {
    if (!this.#options.isNeeded()) return;
    const { bootMs } = hostMoment();
    if (bootMs - this.#renewedAtMs > HOLD_AFTER_MS) {
      this.#isInDoubt = true;
      void this.#doubt();
    }
    if (bootMs - this.#askedAtMs >= RENEW_EVERY_MS) void this.#keep(bootMs);
  }

  async #doubt(): Promise<void> {
    if (this.#isDoubting) return;
    this.#isDoubting = true;
    const { onDoubt, log } = this.#options;
    await onDoubt().catch((error: unknown) => log.error({ err: error }, 'a VM with a disk is not held'));
    this.#isDoubting = false;
  }

  async #keep(nowMs: number): Promise<void> {
    if (this.#isKeeping) return;
    this.#isKeeping = true;
    this.#askedAtMs = nowMs;
    try {
      await this.renew();
      if (this.#isInDoubt) await this.#options.onCertain();
      this.#isInDoubt = false;
    } catch (error) {
      this.#options.log.warn({ err: error }, 'the lease of the disks was not renewed');
    } finally {
      this.#isKeeping = false;
    }
  }

  /** Without the file the next process holds its VMs until it has renewed the lease. */
  #noteRenewed(): void {
    const { path, log } = this.#options;
    const renewed: z.infer<typeof Renewed> = { boot_id: hostMoment().bootId, boot_ms: this.#renewedAtMs };
    try {
      writeAtomically(path, JSON.stringify(renewed));
    } catch (error) {
      log.debug({ err: error }, 'the time of the renewal was not written');
    }
  }
}

function readRenewed(path: string): number {
  try {
    const { boot_id, boot_ms } = Renewed.parse(JSON.parse(readFileSync(path, 'utf8')));
    return boot_id === hostMoment().bootId ? boot_ms : -Infinity;
  } catch {
    return -Infinity;
  }
}
