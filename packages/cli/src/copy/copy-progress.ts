import { ERASE_LINE } from '../output/output.ts';
import { formatBytes } from '../output/quantities.ts';

const REDRAW_MS = 100;

/** Counts what a copy has done, and shows it on a terminal while the copy runs. Its controller ends the copy. */
export class CopyProgress {
  files = 0;
  bytes = 0;
  readonly #isShown = process.stderr.isTTY;
  #drawnAtMs = 0;
  readonly #controller: AbortController;

  constructor(controller: AbortController) {
    this.#controller = controller;
  }

  /** Aborted by a signal of the operating system, and by the first failure. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Ends the copy. */
  abort(reason: unknown): void {
    this.#controller.abort(reason);
  }

  addBytes(count: number): void {
    this.bytes += count;
    this.#draw();
  }

  addFile(): void {
    this.files += 1;
    this.#draw();
  }

  /** Removes the line from the terminal. */
  end(): void {
    if (this.#isShown && this.#drawnAtMs > 0) process.stderr.write(ERASE_LINE);
  }

  get summary(): string {
    return `${this.files} ${this.files === 1 ? 'file' : 'files'}, ${formatBytes(this.bytes)}`;
  }

  #draw(): void {
    const nowMs = performance.now();
    if (!this.#isShown || nowMs - this.#drawnAtMs < REDRAW_MS) return;
    this.#drawnAtMs = nowMs;
    process.stderr.write(`${ERASE_LINE}${this.summary}`);
  }
}

/** Passes a stream on and counts its bytes. */
export function counted(
  stream: ReadableStream<Uint8Array<ArrayBuffer>>,
  progress: CopyProgress,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  return stream.pipeThrough(
    new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
      transform(chunk, controller) {
        progress.addBytes(chunk.length);
        controller.enqueue(chunk);
      },
    }),
  );
}
