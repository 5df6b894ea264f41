/**
 * When something of the cache was used last, durable but cheap: the time stamp of an empty file beside it, set at most
 * once a minute. A crash loses at most that minute and what the host had not written, which only changes the order of
 * evictions.
 */
import { closeSync, openSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';

const MARK_NAME = 'last-used';
const GRAIN_MS = 60_000;

export class LastUse {
  readonly #directory: string;
  #usedMs: number;
  #markedMs: number;

  private constructor(directory: string, usedMs: number) {
    this.#directory = directory;
    this.#usedMs = usedMs;
    this.#markedMs = usedMs;
  }

  /** What was marked; without a mark the directory's own time, when it was made. */
  static read(directory: string): LastUse {
    const mark = statSync(join(directory, MARK_NAME), { throwIfNoEntry: false });
    return new LastUse(directory, (mark ?? statSync(directory)).mtimeMs);
  }

  /** Milliseconds since 1970. */
  get ms(): number {
    return this.#usedMs;
  }

  mark(nowMs = Date.now()): void {
    this.#usedMs = nowMs;
    // A clock that was set back must not keep an old mark in front for years.
    if (Math.abs(nowMs - this.#markedMs) < GRAIN_MS) return;
    this.#markedMs = nowMs;
    const path = join(this.#directory, MARK_NAME);
    try {
      closeSync(openSync(path, 'a', 0o600));
      utimesSync(path, nowMs / 1000, nowMs / 1000);
    } catch (error) {
      // On a full disk, say: no reason to fail a create.
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    }
  }
}
