/**
 * Room that is kept for what makes room. The end of a VM is written down before its disk is taken away: on a disk without
 * a free block that would be refused, and so would the very deletion that was to help.
 *
 *   held ──a disk is full──► given up, the work done again ──there is room──► held
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
  /** On the disk that `disk` looks at. */
  directory: string;
  disk: Pick<DiskGuard, 'freeMiB' | 'reserveMiB'>;
  log: Logger;
}

export class Ballast implements Disposable {
  readonly #path: string;
  readonly #options: BallastOptions;
  #timer: NodeJS.Timeout | undefined;

  /** Held as soon as there is room for it. */
  constructor(options: BallastOptions) {
    this.#options = options;
    this.#path = join(options.directory, 'ballast');
    this.#hold();
  }

  /** `work` is done once more, with this room, when a disk was full. It leaves nothing when it fails. */
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

  /** Without it all goes on. The bytes are such as no file system makes smaller. */
  #hold(): void {
    const { disk, log } = this.#options;
    try {
      if (statSync(this.#path, { throwIfNoEntry: false })?.size === SIZE_MIB * MIB) return;
      if (disk.freeMiB < disk.reserveMiB) return this.#holdLater();
      writeFileSync(this.#path, randomBytes(SIZE_MIB * MIB), { mode: 0o600 });
    } catch (error) {
      log.warn({ err: error }, 'room for the end of sandboxes could not be kept; tried again');
      this.#holdLater();
    }
  }

  #holdLater(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#hold(), RETRY_MS).unref();
  }
}
