import type { PrepareProgress } from '../store/image-store.types.ts';

const INTERVAL_MS = 250;

/** Counts the bytes of a step and reports the progress a few times a second. */
export class ProgressMeter {
  readonly #step: PrepareProgress['step'];
  readonly #totalBytes: number;
  readonly #tell: (progress: PrepareProgress) => void;
  #doneBytes = 0;
  #toldAtMs = Number.NEGATIVE_INFINITY;

  constructor(step: PrepareProgress['step'], totalBytes: number, tell: (progress: PrepareProgress) => void) {
    this.#step = step;
    this.#totalBytes = totalBytes;
    this.#tell = tell;
  }

  add(bytes: number): void {
    this.#doneBytes += bytes;
    const isEnd = this.#doneBytes === this.#totalBytes;
    const nowMs = performance.now();
    if (!isEnd && nowMs - this.#toldAtMs < INTERVAL_MS) return;
    this.#toldAtMs = nowMs;
    this.#tell({ step: this.#step, doneBytes: this.#doneBytes, totalBytes: this.#totalBytes });
  }
}
