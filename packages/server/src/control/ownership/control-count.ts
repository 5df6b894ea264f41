/** Counts the controls that may still be working. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { Database } from '../db/database.ts';
import { IS_LIVE_CONTROL } from './live-controls.ts';

const READ_EVERY_MS = 3_000;

export interface ControlCountParts {
  db: Database;
  log: Logger;
  readEveryMs?: number;
}

/** The number of live controls, which is read again every few seconds. */
export class ControlCount implements AsyncDisposable {
  readonly #parts: ControlCountParts;
  readonly #stop = new AbortController();
  #count = 1;
  #loop: Promise<void> = Promise.resolve();

  private constructor(parts: ControlCountParts) {
    this.#parts = parts;
  }

  static async open(parts: ControlCountParts): Promise<ControlCount> {
    const count = new ControlCount(parts);
    await count.#read();
    count.#loop = count.#run();
    return count;
  }

  /** At least 1: this one. */
  get now(): number {
    return this.#count;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { readEveryMs = READ_EVERY_MS, log } = this.#parts;
    const { signal } = this.#stop;
    for (;;) {
      await delay(readEveryMs, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      await this.#read().catch((error: unknown) =>
        log.warn({ err: error }, 'the controls could not be counted; the last number holds'),
      );
    }
  }

  async #read(): Promise<void> {
    const { count } = await this.#parts.db
      .selectFrom('controls')
      .select((row) => row.fn.countAll<number>().as('count'))
      .where(IS_LIVE_CONTROL)
      .executeTakeFirstOrThrow();
    this.#count = Math.max(1, count);
  }
}
