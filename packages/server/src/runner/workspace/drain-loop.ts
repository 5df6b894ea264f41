/**
 * Seals and drains one attached disk in the background:
 *
 *   written to, and 5 s since the last seal, or 64 MiB ─► seal     not while 8 sealed overlays wait
 *   sealed overlays                                    ─► drain    repeated with growing pauses while the store fails
 *   more than the limit not drained                    ─► the VM is held until half of it is drained
 *   the VM is gone                                     ─► drain all, release, end
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { BlockServerError } from './block-server.ts';
import type { Attachment } from './attachment.ts';

const CHECK_MS = 500;
const SEAL_AFTER_MS = 5000;
const SEAL_AFTER_BYTES = 64 << 20;
const MAX_SEALED = 8;
const MIN_PAUSE_MS = 500;
const MAX_PAUSE_MS = 10_000;
/** The block server tries again for many minutes before it reports a store that fails. */
const LATE_MS = 3000;

const FULL = 'more data waits for the object store than may wait on this host';

export interface DrainLoopOptions {
  attachment: Attachment;
  /** Most bytes of this disk that wait on this host. */
  maxDirtyBytes: number;
  /** Called once, when nothing of the attachment is left. */
  onReleased: () => void;
  log: Logger;
}

export class DrainLoop {
  readonly #options: DrainLoopOptions;
  #nap = new AbortController();
  #isLeft = false;
  #isClosed = false;
  #lastSealAt = performance.now();
  #pauseMs = CHECK_MS;
  #lookedAt = performance.now();
  readonly #released = Promise.withResolvers<undefined>();

  constructor(options: DrainLoopOptions) {
    this.#options = options;
    void this.#run();
    void this.#watch();
  }

  /** Settles when the disk is released, and not when the loop is closed before. */
  get released(): Promise<undefined> {
    return this.#released.promise;
  }

  /** Drains all and releases the disk: the VM is gone. */
  leave(): void {
    this.#options.attachment.leave();
    this.#isLeft = true;
    this.#nap.abort();
  }

  /** Stops without a release: the VM and the overlays stay for the next runner process. */
  close(): void {
    this.#isClosed = true;
    this.#nap.abort();
  }

  async #run(): Promise<void> {
    while (!this.#isClosed && !(await this.#look())) {
      this.#nap = new AbortController();
      const { signal } = this.#nap;
      this.#lookedAt = performance.now();
      await delay(this.#pauseMs, undefined, { signal, ref: false }).catch(() => undefined);
      this.#lookedAt = performance.now();
    }
    this.#isClosed = true;
  }

  /** Keeps the bound, and notes what a drain waits for, also during a drain that takes long. */
  async #watch(): Promise<void> {
    const { attachment, log } = this.#options;
    while (!this.#isClosed) {
      try {
        await this.#keepBound();
        if (performance.now() - this.#lookedAt > LATE_MS)
          attachment.waitsFor = await attachment.findStoreFailure();
      } catch (error) {
        log.debug({ err: error, unit: attachment.unit }, 'a disk that is being drained was not looked at');
      }
      await delay(CHECK_MS, undefined, { ref: false });
    }
  }

  async #keepBound(): Promise<void> {
    const { attachment, maxDirtyBytes } = this.#options;
    if (!attachment.hasGuest || attachment.isReplacement) return;
    const { dirtyBytes } = attachment;
    if (dirtyBytes > maxDirtyBytes) await attachment.hold(FULL);
    else if (attachment.heldFor === FULL && dirtyBytes < maxDirtyBytes / 2) await attachment.goOn();
  }

  /** Returns whether there is nothing more to do. */
  async #look(): Promise<boolean> {
    const { attachment, onReleased } = this.#options;
    const isLeft = this.#isLeft;
    try {
      if (isLeft) await attachment.release();
      else await this.#proceed();
      attachment.waitsFor = null;
      this.#pauseMs = CHECK_MS;
    } catch (error) {
      const isLost = error instanceof BlockServerError && error.reason === 'stale';
      if (!isLost) this.#note(error);
      else attachment.lose();
      if (!isLost || !isLeft) return false;
      attachment.discard();
    }
    if (!isLeft) return false;
    this.#released.resolve(undefined);
    onReleased();
    return true;
  }

  #note(error: unknown): void {
    const { attachment, log } = this.#options;
    const { unit, dirtyBytes: dirty_bytes } = attachment;
    // A seal that failed, and whose overlay could not be closed either: the first error is the reason.
    const reason: unknown = error instanceof SuppressedError ? error.suppressed : error;
    attachment.waitsFor = reason instanceof Error ? reason.message : String(reason);
    this.#pauseMs = Math.min(Math.max(2 * this.#pauseMs, MIN_PAUSE_MS), MAX_PAUSE_MS);
    log.warn({ err: error, unit, dirty_bytes }, 'a disk is not drained');
  }

  async #proceed(): Promise<void> {
    const { attachment } = this.#options;
    if (!attachment.hasGuest || attachment.isReplacement) return;
    if (this.#mustSeal()) {
      await attachment.seal();
      this.#lastSealAt = performance.now();
    }
    if (attachment.sealedCount > 0)
      await attachment.drainThrough(attachment.highestSealed, async () => undefined);
  }

  #mustSeal(): boolean {
    const { attachment } = this.#options;
    const { topBytes, sealedCount } = attachment;
    if (topBytes === 0 || sealedCount >= MAX_SEALED) return false;
    return topBytes >= SEAL_AFTER_BYTES || performance.now() - this.#lastSealAt >= SEAL_AFTER_MS;
  }
}
