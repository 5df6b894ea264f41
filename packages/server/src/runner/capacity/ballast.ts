/**
 * Reserved disk space that is released to free more. The end of a VM is recorded before its disk is deleted. On a disk
 * without a free block that write would fail, and with it the deletion that frees space.
 *
 *   reserved ──a disk is full──► released, the work is retried ──there is room──► reserved
 */
import { randomBytes } from 'node:crypto';
import { rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { isDiskFull } from '../host/full-disk.ts';
import type { DiskGuard } from './disk-guard.ts';

const MIB = 1024 * 1024;
const SIZE_MIB = 8;
const RETRY_MS = 1000;

export interface BallastOptions {
  /** On the file system that `disk` watches. */
  directory: string;
  disk: Pick<DiskGuard, 'freeMiB' | 'reserveMiB'>;
  log: Logger;
}

export class Ballast implements Disposable {
  readonly #path: string;
  readonly #options: BallastOptions;
  #timer: NodeJS.Timeout | undefined;

  /** Reserves the space as soon as there is room for it. */
  constructor(options: BallastOptions) {
    this.#options = options;
    this.#path = join(options.directory, 'ballast');
    this.#hold();
  }

  /** Runs `work`; if a disk is full, releases the space and retries once. A failed `work` must leave nothing. */
  async use<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      this.#giveUp(error);
      return await work();
    }
  }

  useSync<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      this.#giveUp(error);
      return work();
    }
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
  }

  #giveUp(error: unknown): void {
    if (!isDiskFull(error)) throw error;
    rmSync(this.#path, { force: true });
    this.#holdLater();
  }

  /** The service also works without it. The bytes are random, so that no file system compresses them. */
  #hold(): void {
    const { disk, log } = this.#options;
    try {
      if (statSync(this.#path, { throwIfNoEntry: false })?.size === SIZE_MIB * MIB) return;
      if (disk.freeMiB < disk.reserveMiB) return this.#holdLater();
      writeFileSync(this.#path, randomBytes(SIZE_MIB * MIB), { mode: 0o600 });
    } catch (error) {
      log.warn({ err: error }, 'could not reserve disk space for the end of sandboxes; retrying');
      this.#holdLater();
    }
  }

  #holdLater(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#hold(), RETRY_MS).unref();
  }
}
