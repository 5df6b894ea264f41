/**
 * The time of the last use of an image or template, durable but cheap: the time stamp of an empty file in its
 * directory, set at most once a minute. A crash loses at most that minute and what the host had not yet written, which
 * only changes the order of evictions.
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

  /** Reads the mark; without one, the time stamp of the directory, which is when it was made. */
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
    // If the clock was set back, an old mark must not stay the newest for years.
    if (Math.abs(nowMs - this.#markedMs) < GRAIN_MS) return;
    this.#markedMs = nowMs;
    const path = join(this.#directory, MARK_NAME);
    try {
      closeSync(openSync(path, 'a', 0o600));
      utimesSync(path, nowMs / 1000, nowMs / 1000);
    } catch (error) {
      // A failure, for example on a full disk, must not fail a create.
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    }
  }
}
