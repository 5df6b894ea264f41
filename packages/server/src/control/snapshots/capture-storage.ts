/**
 * Has a runner put its captures into the object store, in the background, and removes what no record names:
 *
 *   snapshot ready, sandbox hibernated ─► row of capture_objects ─► stored by the runner ─► stored_at
 *   no record names the capture        ─► objects deleted ─► removed_at ─► chunks collected ─► row deleted
 *
 * A failure loses nothing: the local capture stays, and control asks again, less often each time.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { Leadership } from '../ownership/leadership.ts';
import type { RunnerCaptures } from '../placement/runner-captures.ts';
import type { Clock } from '../time/clock.ts';
import type { CaptureObjectStore, OwnedCapture } from './capture-object-store.ts';

/** As many as the runner stores at a time. */
const MAX_RUNNING = 2;
const FIRST_RETRY_MS = 5_000;
const MAX_RETRY_MS = 10 * 60_000;
/** Two passes of the collector delete what was just removed. */
const COLLECT_INTERVAL_MS = 60_000;

export interface CaptureStorageParts {
  store: CaptureObjectStore;
  runnerId: string;
  captures: Pick<RunnerCaptures, 'list' | 'store' | 'remove' | 'collect'>;
  isConnected: () => boolean;
  /** The leading control removes the objects that no record names, through any of its runners. */
  leadership: Leadership;
  clock: Clock;
  intervalMs: number;
  log: Logger;
}

interface Retry {
  /** Monotonic time. */
  atMs: number;
  pauseMs: number;
}

export class CaptureStorage implements AsyncDisposable {
  readonly #parts: CaptureStorageParts;
  readonly #stop = new AbortController();
  readonly #running = new Map<string, Promise<void>>();
  readonly #retries = new Map<string, Retry>();
  /** When the chunks of each organization were last collected. */
  readonly #collected = new Map<string, number>();
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: CaptureStorageParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#loop = this.#run();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#loop;
    await Promise.all(this.#running.values());
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await delay(this.#parts.intervalMs, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      if (!this.#parts.isConnected()) continue;
      await this.#reconcile().catch((error: unknown) => {
        if (!signal.aborted)
          this.#parts.log.warn(
            { err: error },
            'stored captures could not be reconciled; control tries again',
          );
      });
    }
  }

  async #reconcile(): Promise<void> {
    await this.#noteLocal();
    await this.#storeNext();
    if (!this.#parts.leadership.isLeading) return;
    await this.#removeLeft();
    await this.#collect();
  }

  async #noteLocal(): Promise<void> {
    const { store, captures, runnerId } = this.#parts;
    const local = await captures.list();
    await store.noteLocal(
      runnerId,
      local.map(({ id }) => id),
    );
  }

  /** Begins as many as may run. */
  async #storeNext(): Promise<void> {
    const { store, runnerId, clock } = this.#parts;
    if (this.#running.size >= MAX_RUNNING) return;
    const unstored = await store.listUnstored(runnerId);
    this.#forgetRetries(unstored);
    const now = clock.monotonicMs();
    const due = unstored.filter(
      ({ captureId }) => !this.#running.has(captureId) && (this.#retries.get(captureId)?.atMs ?? 0) <= now,
    );
    for (const capture of due.slice(0, MAX_RUNNING - this.#running.size)) {
      const done = this.#storeOne(capture).finally(() => this.#running.delete(capture.captureId));
      this.#running.set(capture.captureId, done);
    }
  }

  async #storeOne(capture: OwnedCapture): Promise<void> {
    const { store, captures, runnerId, clock, log } = this.#parts;
    const { captureId, organizationId } = capture;
    try {
      await store.begin(capture, runnerId, clock.wallMs());
      const { stored_bytes: bytes, sent_bytes } = await captures.store(
        captureId,
        organizationId,
        this.#stop.signal,
      );
      this.#retries.delete(captureId);
      log.info(
        { capture_id: captureId, stored_bytes: bytes, sent_bytes },
        'a capture is in the object store',
      );
      // Deleted meanwhile: the objects were removed before they were complete.
      if (!(await store.noteStored(captureId, bytes, clock.wallMs())))
        await captures.remove(captureId, organizationId);
    } catch (error) {
      if (!this.#stop.signal.aborted) this.#noteFailure(captureId, error);
    }
  }

  #noteFailure(captureId: string, error: unknown): void {
    const { clock, log } = this.#parts;
    const pauseMs = Math.min(MAX_RETRY_MS, 2 * (this.#retries.get(captureId)?.pauseMs ?? FIRST_RETRY_MS / 2));
    this.#retries.set(captureId, { atMs: clock.monotonicMs() + pauseMs, pauseMs });
    log.warn(
      { err: error, capture_id: captureId, retry_ms: pauseMs },
      'a capture could not be put into the object store; it stays at its runner, and control tries again',
    );
  }

  #forgetRetries(unstored: readonly OwnedCapture[]): void {
    const wanted = new Set(unstored.map(({ captureId }) => captureId));
    for (const id of this.#retries.keys()) if (!wanted.has(id)) this.#retries.delete(id);
  }

  async #removeLeft(): Promise<void> {
    const { store, captures, clock, log } = this.#parts;
    for (const { captureId, organizationId } of await store.listLeft()) {
      if (this.#stop.signal.aborted) return;
      try {
        await captures.remove(captureId, organizationId);
      } catch (error) {
        // A sandbox is being made of it. The others must not wait.
        if (!(error instanceof AppError && error.code === 'invalid_state')) throw error;
        continue;
      }
      await store.noteRemoved(captureId, clock.wallMs());
      log.info({ capture_id: captureId }, 'a capture was removed from the object store');
    }
  }

  async #collect(): Promise<void> {
    const { store, captures, clock, log } = this.#parts;
    const now = clock.monotonicMs();
    for (const organizationId of await store.listToCollect()) {
      if (this.#stop.signal.aborted) return;
      if (now - (this.#collected.get(organizationId) ?? -Infinity) < COLLECT_INTERVAL_MS) continue;
      this.#collected.set(organizationId, now);
      const begunAt = clock.wallMs();
      const {
        deleted_objects: objects,
        deleted_bytes: bytes,
        unused,
      } = await captures.collect(organizationId);
      if (objects > 0)
        log.info({ organization_id: organizationId, objects, bytes }, 'objects of captures were deleted');
      if (unused > 0) continue;
      await store.forgetRemoved(organizationId, begunAt);
      this.#collected.delete(organizationId);
    }
  }
}
