/**
 * Has a runner put its captures and images into the object store, in the background, and removes what no record names:
 *
 *   snapshot ready, sandbox hibernated, image named ─► row of capture_objects ─► stored by the runner ─► stored_at
 *   image of a registry used by an organization     ─►  … by one of the runners that have it
 *   no record names it, or it is not used           ─► objects deleted ─► removed_at ─► chunks collected ─► row deleted
 *
 * A failure loses nothing: the local files stay, and control asks again, less often each time.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { EVERYONE } from '../../lib/protocol/capture-protocol.ts';
import type { RunnerCaptures } from '../placement/runner-captures.ts';
import type { RunnerImages } from '../placement/runner-images.ts';
import { isUnanswered } from '../placement/runner-error.ts';
import type { Clock } from '../time/clock.ts';
import type { CaptureObjectStore, OwnedCapture } from './capture-object-store.ts';
import type { PulledImageStore } from './pulled-image-store.ts';

/** As many captures as the runner stores at a time. */
const MAX_RUNNING = 2;
/** Of images, which are large: hibernated sandboxes must not wait for them, nor those that were built for those that can be pulled. */
const MAX_RUNNING_IMAGES = 1;
const FIRST_RETRY_MS = 5_000;
const MAX_RETRY_MS = 10 * 60_000;
/** Two passes of the collector delete what was just removed. */
const COLLECT_INTERVAL_MS = 60_000;
/** Images that are said to be at no runner are rare, and those of registries can wait. */
const ROUNDS_PER_LOOK = 6;

export interface CaptureStorageParts {
  store: CaptureObjectStore;
  pulledImages: PulledImageStore;
  runnerId: string;
  captures: Pick<RunnerCaptures, 'list' | 'store' | 'remove' | 'collect'>;
  images: Pick<RunnerImages, 'store' | 'removeStored'>;
  isConnected: () => boolean;
  /** Whether the runner puts images into the object store. */
  storesImages: () => boolean;
  /** Digests of the images that the runner has. */
  listImages: () => readonly string[];
  /** The leading control removes the objects that no record names, through one of its runners. */
  isRemoving: () => boolean;
  clock: Clock;
  intervalMs: number;
  log: Logger;
}

type Kind = 'capture' | 'built' | 'pulled';

interface Retry {
  /** Monotonic time. */
  atMs: number;
  pauseMs: number;
}

export class CaptureStorage implements AsyncDisposable {
  readonly #parts: CaptureStorageParts;
  readonly #stop = new AbortController();
  readonly #running = new Map<string, { kind: Kind; done: Promise<void> }>();
  readonly #retries = new Map<string, Retry>();
  /** When the chunks of each organization were last collected. */
  readonly #collected = new Map<string, number>();
  #rounds = 0;
  /** Images of registries to store, as of the last look. */
  #pulled: OwnedCapture[] = [];
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
    await Promise.all(Array.from(this.#running.values(), ({ done }) => done));
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
    if (!this.#parts.isRemoving()) return;
    // What cannot be removed must not hold up the rest.
    const [removed] = await Promise.allSettled([this.#removeLeft()]);
    await this.#collect();
    if (removed.status === 'rejected') throw removed.reason;
  }

  async #noteLocal(): Promise<void> {
    const { store, pulledImages, captures, runnerId, storesImages, listImages, clock } = this.#parts;
    if (this.#rounds++ % ROUNDS_PER_LOOK === 0) {
      await store.adoptImages(runnerId, listImages());
      if (storesImages())
        this.#pulled = await pulledImages.listUnstored(runnerId, listImages(), clock.wallMs());
    }
    const local = await captures.list();
    await store.noteLocal(
      runnerId,
      local.map(({ id }) => id),
    );
  }

  /** Begins as many as may run. */
  async #storeNext(): Promise<void> {
    const { store, runnerId, storesImages } = this.#parts;
    const captures = await store.listUnstored(runnerId);
    const built = storesImages() ? await store.listUnstoredImages(runnerId) : [];
    this.#forgetRetries([...captures, ...built, ...this.#pulled]);
    this.#begin('capture', captures, MAX_RUNNING);
    this.#begin('built', built, MAX_RUNNING_IMAGES);
    this.#begin('pulled', this.#pulled, MAX_RUNNING_IMAGES);
  }

  #begin(kind: Kind, listed: readonly OwnedCapture[], maxRunning: number): void {
    // Some of them may not be wanted any more.
    const running = [...this.#running.values()].filter((each) => each.kind === kind).length;
    const now = this.#parts.clock.monotonicMs();
    const due = listed.filter(
      ({ captureId }) => !this.#running.has(captureId) && (this.#retries.get(captureId)?.atMs ?? 0) <= now,
    );
    for (const capture of due.slice(0, Math.max(0, maxRunning - running))) {
      const done = this.#storeOne(capture).finally(() => this.#running.delete(capture.captureId));
      this.#running.set(capture.captureId, { kind, done });
    }
  }

  async #storeOne(capture: OwnedCapture): Promise<void> {
    const { store, captures, images, clock, log } = this.#parts;
    const { captureId, organizationId } = capture;
    try {
      if (!(await this.#claim(capture))) return;
      const at = isImage(captureId) ? images : captures;
      const { stored_bytes: bytes, sent_bytes } = await at.store(
        captureId,
        organizationId,
        this.#stop.signal,
      );
      this.#retries.delete(captureId);
      this.#forgetPulled(captureId);
      log.info(
        { capture_id: captureId, stored_bytes: bytes, sent_bytes },
        `${describe(captureId)} is in the object store`,
      );
      // Deleted meanwhile: the objects were removed before they were complete.
      if (!(await store.noteStored(captureId, bytes, clock.wallMs()))) await this.#remove(capture);
    } catch (error) {
      if (this.#stop.signal.aborted || (await this.#isGone(capture, error))) return;
      this.#noteFailure(captureId, error);
      if (organizationId === EVERYONE) await this.#releasePulled(captureId);
    }
  }

  /** Returns false if this runner need not store it. */
  async #claim(capture: OwnedCapture): Promise<boolean> {
    const { store, pulledImages, runnerId, clock } = this.#parts;
    const { captureId, organizationId } = capture;
    if (organizationId === EVERYONE) {
      const isOurs = await pulledImages.claim(captureId, runnerId, clock.wallMs());
      if (!isOurs) this.#forgetPulled(captureId);
      return isOurs;
    }
    await store.begin(capture, runnerId, clock.wallMs());
    return true;
  }

  async #releasePulled(digest: string): Promise<void> {
    const { pulledImages, runnerId, log } = this.#parts;
    await pulledImages
      .release(digest, runnerId)
      .catch((error: unknown) =>
        log.warn({ err: error, image: digest }, 'other runners wait to store an image'),
      );
  }

  #forgetPulled(digest: string): void {
    this.#pulled = this.#pulled.filter(({ captureId }) => captureId !== digest);
  }

  /** Whether the runner does not have an image, which is noted then: another one may. */
  async #isGone({ captureId: digest, organizationId }: OwnedCapture, error: unknown): Promise<boolean> {
    const { store, runnerId, log } = this.#parts;
    const isLacking = error instanceof AppError && error.code === 'image_not_found';
    if (!isLacking || organizationId === EVERYONE) return false;
    try {
      await store.noteImageGone(runnerId, digest);
    } catch {
      return false;
    }
    log.warn({ image: digest, runner_id: runnerId }, 'a built image is not at the runner that its names say');
    return true;
  }

  #noteFailure(captureId: string, error: unknown): void {
    const { clock, log } = this.#parts;
    const pauseMs = Math.min(MAX_RETRY_MS, 2 * (this.#retries.get(captureId)?.pauseMs ?? FIRST_RETRY_MS / 2));
    this.#retries.set(captureId, { atMs: clock.monotonicMs() + pauseMs, pauseMs });
    log.warn(
      { err: error, capture_id: captureId, retry_ms: pauseMs },
      `${describe(captureId)} could not be put into the object store; it stays at its runner, and control tries again`,
    );
  }

  #forgetRetries(unstored: readonly OwnedCapture[]): void {
    const wanted = new Set(unstored.map(({ captureId }) => captureId));
    for (const id of this.#retries.keys()) if (!wanted.has(id)) this.#retries.delete(id);
  }

  /** Throws at its end if some could not be removed, and at once if nothing answers. */
  async #removeLeft(): Promise<void> {
    let failure: { error: unknown } | undefined;
    const { store, pulledImages, clock } = this.#parts;
    for (const left of [...(await store.listLeft()), ...(await pulledImages.listLeft(clock.wallMs()))]) {
      if (this.#stop.signal.aborted) return;
      try {
        await this.#removeOne(left);
      } catch (error) {
        if (isUnanswered(error)) throw error;
        // A sandbox may be made of it.
        if (!(error instanceof AppError && error.code === 'invalid_state')) failure ??= { error };
      }
    }
    if (failure !== undefined) throw failure.error;
  }

  async #removeOne(left: OwnedCapture): Promise<void> {
    const { store, pulledImages, storesImages, clock, log } = this.#parts;
    const { captureId, organizationId } = left;
    if (isImage(captureId)) {
      // A runner of an earlier version would only refuse.
      if (!storesImages()) return;
      const records = organizationId === EVERYONE ? pulledImages : store;
      if (!(await records.claimRemoval(captureId, clock.wallMs()))) return;
      await this.#remove(left);
    } else {
      await this.#remove(left);
      await store.noteRemoved(captureId, clock.wallMs());
    }
    log.info({ capture_id: captureId }, `${describe(captureId)} was removed from the object store`);
  }

  async #remove({ captureId, organizationId }: OwnedCapture): Promise<void> {
    const { store, captures, images } = this.#parts;
    if (!isImage(captureId)) return captures.remove(captureId, organizationId);
    await images.removeStored(captureId, organizationId);
    await store.noteImageRemoved(captureId);
  }

  /** Removes the images of an organization that are noted as removed: a kill may have come after the note. */
  async #removeNoted(organizationId: string): Promise<void> {
    for (const captureId of await this.#parts.store.listRemovedImages(organizationId))
      await this.#remove({ captureId, organizationId });
  }

  async #collect(): Promise<void> {
    const { store, captures, clock, log } = this.#parts;
    const now = clock.monotonicMs();
    for (const organizationId of await store.listToCollect()) {
      if (this.#stop.signal.aborted) return;
      if (now - (this.#collected.get(organizationId) ?? -Infinity) < COLLECT_INTERVAL_MS) continue;
      this.#collected.set(organizationId, now);
      const begunAt = clock.wallMs();
      const [removed] = await Promise.allSettled([this.#removeNoted(organizationId)]);
      const {
        deleted_objects: objects,
        deleted_bytes: bytes,
        unused,
      } = await captures.collect(organizationId);
      if (objects > 0)
        log.info({ organization_id: organizationId, objects, bytes }, 'objects of captures were deleted');
      // Its rows stay until its removed images are gone.
      if (removed.status === 'rejected') throw removed.reason;
      if (unused > 0) continue;
      await store.forgetRemoved(organizationId, begunAt);
      this.#collected.delete(organizationId);
    }
  }
}

function describe(id: string): string {
  return isImage(id) ? 'an image' : 'a capture';
}

/** Whether it is the digest of an image. */
function isImage(id: string): boolean {
  return id.startsWith('sha256:');
}
