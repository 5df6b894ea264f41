/**
 * The agent's data port between two sessions. A marker separates them in each direction: bytes before the marker belong
 * to an older session, bytes after it to the new one. An older session cannot know the marker.
 */
import { randomBytes } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { withDeadline } from '../../lib/waiting/deadline.ts';

const MARKER_RANDOM_BYTES = 16;

/** The marker is text because it is also sent in JSON. */
export function newMarker(): string {
  return randomBytes(MARKER_RANDOM_BYTES).toString('hex');
}

/** Reads the line and discards its bytes until the line is released. */
export class DataLine {
  readonly #socket: Duplex;
  readonly #marker: Buffer;
  readonly #marked = Promise.withResolvers<undefined>();
  #latest: Buffer = Buffer.alloc(0);

  constructor(socket: Duplex, marker: string) {
    this.#socket = socket;
    this.#marker = Buffer.from(marker);
    // The promise may reject without a waiter.
    this.#marked.promise.catch(() => undefined);
    socket.on('data', this.#onData).on('error', this.#onEnd).on('close', this.#onEnd);
  }

  /**
   * Resolves when the agent's marker has been read. Throws DeadlineError after `timeoutMs`, or an error if the port
   * closes.
   */
  async passMarker(timeoutMs: number): Promise<void> {
    await withDeadline("the agent's marker", timeoutMs, this.#marked.promise);
  }

  /** Returns the socket, paused and without listeners of this class. */
  release(): Duplex {
    this.#socket.off('data', this.#onData).off('error', this.#onEnd).off('close', this.#onEnd);
    return this.#socket.pause();
  }

  readonly #onData = (chunk: Buffer): void => {
    const seen = Buffer.concat([this.#latest, chunk]);
    if (seen.includes(this.#marker)) this.#marked.resolve(undefined);
    this.#latest = seen.subarray(Math.max(0, seen.length - this.#marker.length + 1));
  };

  readonly #onEnd = (): void => this.#marked.reject(new Error("the agent's data port closed"));
}
