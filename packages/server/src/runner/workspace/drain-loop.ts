/**
 * Seals and drains one attached disk in the background:
 *
 *   written to, and 5 s since the last seal, or 64 MiB ─► seal     not while 8 sealed overlays wait
 *   sealed overlays                                    ─► drain    repeated with growing pauses while the store fails
 *   a minute after the attach, and every hour          ─► compact  while only the top waits
 *   more than the limit not drained                    ─► the VM is held until half of it is drained
 *   the VM is gone                                     ─► drain all, release, end
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { SerialQueue } from '../../lib/waiting/serial-queue.ts';
import { BlockServerError } from './block-server.ts';
import type { Attachment } from './attachment.ts';
import { findStoreFailure } from './store-health.ts';

const CHECK_MS = 500;
/** Also sandboxes that live only for minutes keep their disk compact. */
const FIRST_COMPACT_MS = 60_000;
const COMPACT_MS = 60 * 60_000;
/** One pass moves a limited number of bytes. */
const NEXT_COMPACT_MS = 30_000;
const MAX_COMPACTIONS = 16;
const SEAL_AFTER_MS = 5000;
const SEAL_AFTER_BYTES = 64 << 20;
const MAX_SEALED = 8;
const MIN_PAUSE_MS = 500;
const MAX_PAUSE_MS = 10_000;

/** Callers see that a drain takes longer. */
const LONG_DRAIN_MS = 3000;

const FULL = 'more data waits for the object store than may wait on this host';
const SLOW = 'the object store has not taken the data yet';

export interface DrainLoopOptions {
  attachment: Attachment;
  /** Most bytes of this disk that wait on this host. */
  maxDirtyBytes: number;
  /** Time until the first compaction. Default: a minute. */
  firstCompactMs?: number;
  /** Of all disks: one is compacted at a time. */
  compactions: SerialQueue;
  /** Called once, when nothing of the attachment is left. */
  onReleased: () => void;
  log: Logger;
}

type Activity = 'limit' | 'seal' | 'drain' | 'release' | 'ask' | 'compact';

export class DrainLoop {
  readonly #options: DrainLoopOptions;
  /** Activities in progress, with their begin. A store that hangs must not end the check of the limit. */
  readonly #busy = new Map<Activity, number>();
  #nap = new AbortController();
  #isLeft = false;
  #isClosed = false;
  #lastSealAt = performance.now();
  /** After failures nothing is drained until then. */
  #restsUntil = 0;
  #pauseMs = 0;
  #compactsAt: number;
  /** Compactions since there was last nothing to move. */
  #compacted = 0;
  readonly #released = Promise.withResolvers<undefined>();

  constructor(options: DrainLoopOptions) {
    this.#options = options;
    this.#compactsAt = performance.now() + (options.firstCompactMs ?? FIRST_COMPACT_MS);
    void this.#run();
  }

  /** Settles when the disk is released, and not when the loop is closed before. */
  get released(): Promise<undefined> {
    return this.#released.promise;
  }

  /** Drains all and releases the disk: the VM is gone. */
  leave(): void {
    this.#isLeft = true;
    this.#restsUntil = 0;
    this.#options.attachment.leave();
    this.#nap.abort();
  }

  /** Stops without a release: the VM and the overlays stay for the next runner process. */
  close(): void {
    this.#isClosed = true;
    this.#nap.abort();
  }

  async #run(): Promise<void> {
    while (!this.#isClosed) {
      this.#look();
      this.#nap = new AbortController();
      const { signal } = this.#nap;
      await delay(CHECK_MS, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }

  #look(): void {
    const { attachment } = this.#options;
    const isResting = performance.now() < this.#restsUntil;
    if (this.#isLeft) {
      if (!isResting) this.#begin('release', () => this.#release());
    } else if (attachment.hasGuest && !attachment.isReplacement) {
      this.#begin('limit', () => this.#limit());
      if (this.#mustSeal()) this.#begin('seal', () => this.#seal());
      if (attachment.mustDrain) {
        if (!isResting) this.#begin('drain', () => this.#drain());
      } else if (performance.now() >= this.#compactsAt) this.#begin('compact', () => this.#compact());
    }
    const since = this.#busy.get('release') ?? this.#busy.get('drain') ?? Infinity;
    if (performance.now() - since > LONG_DRAIN_MS) this.#begin('ask', () => this.#askReason());
  }

  /** Begins an activity that is not in progress. Its failure is noted. */
  #begin(activity: Activity, work: () => Promise<void>): void {
    if (this.#busy.has(activity)) return;
    this.#busy.set(activity, performance.now());
    const { log, attachment } = this.#options;
    work()
      .catch((error: unknown) => this.#fail(error))
      .catch((error: unknown) => log.error({ err: error, unit: attachment.unit }, 'a disk is neglected'))
      .finally(() => this.#busy.delete(activity));
  }

  async #fail(error: unknown): Promise<void> {
    const { attachment } = this.#options;
    if (!isStale(error)) return this.#note(error);
    attachment.lose();
    if (this.#isLeft) await this.#discard();
  }

  async #discard(): Promise<void> {
    this.#end();
    await this.#options.attachment.discard();
  }

  #end(): void {
    this.close();
    this.#released.resolve(undefined);
    this.#options.onReleased();
  }

  #note(error: unknown): void {
    const { attachment, log } = this.#options;
    const { unit, dirtyBytes: dirty_bytes } = attachment;
    attachment.waitsFor = error instanceof Error ? error.message : String(error);
    this.#pauseMs = Math.min(Math.max(2 * this.#pauseMs, MIN_PAUSE_MS), MAX_PAUSE_MS);
    this.#restsUntil = performance.now() + this.#pauseMs;
    log.warn({ err: error, unit, dirty_bytes }, 'a disk is not drained');
  }

  #succeed(): void {
    this.#options.attachment.waitsFor = null;
    this.#pauseMs = 0;
  }

  async #release(): Promise<void> {
    await this.#options.attachment.release();
    this.#succeed();
    this.#end();
  }

  /** The block server tries again for many minutes before it reports a store that fails. */
  async #askReason(): Promise<void> {
    const { attachment } = this.#options;
    const failure = await findStoreFailure(attachment.server).catch(() => null);
    if (this.#busy.has('drain') || this.#busy.has('release')) attachment.waitsFor = failure ?? SLOW;
  }

  /** Repeats what a VM did not obey. */
  async #limit(): Promise<void> {
    const { attachment, maxDirtyBytes } = this.#options;
    const dirtyBytes = attachment.dirtyBytes;
    const isHeld = attachment.isHeldFor(FULL);
    if (dirtyBytes > maxDirtyBytes || (isHeld && dirtyBytes >= maxDirtyBytes / 2))
      await attachment.hold(FULL);
    else await attachment.goOn(FULL);
  }

  async #seal(): Promise<void> {
    using _ = await this.#options.attachment.seal();
    this.#lastSealAt = performance.now();
    this.#nap.abort();
  }

  async #drain(): Promise<void> {
    const { attachment } = this.#options;
    await attachment.drainThrough(attachment.highestSealed);
    this.#succeed();
  }

  /** A store that fails is noticed by the drains. */
  async #compact(): Promise<void> {
    const { attachment, compactions, log } = this.#options;
    this.#compactsAt = performance.now() + COMPACT_MS;
    try {
      const outcome = await compactions.run(async () =>
        this.#isLeft || this.#isClosed ? 'nothing' : attachment.compact(),
      );
      this.#compacted = outcome === 'moved' ? this.#compacted + 1 : 0;
      if (outcome === 'nothing' || this.#compacted >= MAX_COMPACTIONS) return;
      this.#compactsAt = performance.now() + NEXT_COMPACT_MS;
    } catch (error) {
      if (isStale(error)) throw error;
      log.info({ err: error, unit: attachment.unit }, 'a disk is not compacted; the next try is in an hour');
    }
  }

  #mustSeal(): boolean {
    const { attachment } = this.#options;
    const { topBytes, sealedCount } = attachment;
    if (topBytes === 0 || sealedCount >= MAX_SEALED) return false;
    return topBytes >= SEAL_AFTER_BYTES || performance.now() - this.#lastSealAt >= SEAL_AFTER_MS;
  }
}

/** Another holder has the disk. */
function isStale(error: unknown): boolean {
  return error instanceof BlockServerError && error.reason === 'stale';
}
