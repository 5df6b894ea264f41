/**
 * Removes local copies of stored captures when the disk is short, the least recently used first. Creates are refused when
 * the reserve is reached (capacity/disk-guard.ts); eviction begins earlier:
 *
 *   2 × reserve ──── stored captures are evicted below this
 *   reserve ──────── nothing new is created
 */
import type { Logger } from 'pino';
import { LastUse } from '../cache/last-use.ts';
import type { DiskGuard } from '../capacity/disk-guard.ts';
import type { CaptureStore } from '../snapshot/capture-store.ts';
import { findStoredMark, type StoredMark } from './stored-mark.ts';

const CHECK_INTERVAL_MS = 5000;
const SHORT_FACTOR = 2;
/** A capture that was just made is likely to be asked for again. */
const MIN_AGE_MS = 10 * 60_000;

export interface CaptureEvictorParts {
  captures: Pick<CaptureStore, 'list' | 'directoryOf' | 'isInUse'>;
  disk: Pick<DiskGuard, 'freeMiB' | 'reserveMiB' | 'assertRoom'>;
  /** Removes a local copy, after asking the object store whether it has the capture. */
  drop: (id: string, organization: string) => Promise<void>;
  log: Logger;
  nowMs?: () => number;
}

interface Candidate {
  id: string;
  usedMs: number;
  mark: StoredMark;
}

export class CaptureEvictor implements Disposable {
  readonly #parts: CaptureEvictorParts;
  readonly #timer: NodeJS.Timeout;
  #evicting: Promise<void> | undefined;

  constructor(parts: CaptureEvictorParts) {
    this.#parts = parts;
    this.#timer = setInterval(() => void this.#check(), CHECK_INTERVAL_MS);
    this.#timer.unref();
  }

  /** Evicts until that much fits, and throws `capacity` if it does not fit then. */
  async makeRoom(neededMiB: number): Promise<void> {
    const { disk } = this.#parts;
    await this.evictUntil(neededMiB + disk.reserveMiB);
    disk.assertRoom(neededMiB);
  }

  /** Evicts until there is that much free space, or nothing is left that can be evicted. */
  async evictUntil(freeMiB: number): Promise<void> {
    while (this.#evicting !== undefined) await this.#evicting;
    this.#evicting = this.#evict(freeMiB).finally(() => (this.#evicting = undefined));
    await this.#evicting;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  async #check(): Promise<void> {
    const { disk, log } = this.#parts;
    try {
      const wantedMiB = SHORT_FACTOR * disk.reserveMiB;
      if (this.#evicting === undefined && disk.freeMiB < wantedMiB) await this.evictUntil(wantedMiB);
    } catch (error) {
      log.error({ err: error }, 'local copies of snapshots could not be evicted');
    }
  }

  async #evict(freeMiB: number): Promise<void> {
    const { disk, drop, log } = this.#parts;
    if (disk.freeMiB >= freeMiB) return;
    for (const { id, mark } of this.#listCandidates()) {
      if (disk.freeMiB >= freeMiB) return;
      try {
        await drop(id, mark.organization);
        log.info({ capture_id: id, free_mib: disk.freeMiB }, 'local copy of a snapshot evicted');
      } catch (error) {
        // In use by now, or the object store is away or has lost it.
        log.warn({ err: error, capture_id: id }, 'the local copy of a snapshot was not evicted');
      }
    }
  }

  #listCandidates(): Candidate[] {
    const { captures, nowMs = Date.now } = this.#parts;
    const youngest = nowMs() - MIN_AGE_MS;
    const candidates = captures.list().flatMap(({ id }): Candidate[] => {
      const directory = captures.directoryOf(id);
      const mark = captures.isInUse(id) ? undefined : findStoredMark(directory);
      return mark === undefined ? [] : [{ id, usedMs: LastUse.read(directory).ms, mark }];
    });
    return candidates.filter(({ usedMs }) => usedMs <= youngest).sort((a, b) => a.usedMs - b.usedMs);
  }
}
