/**
 * The agent's data port while it changes from one session to the next. What an older session had under way, in either
 * direction, comes before a marker that neither can have known; what follows the marker is of the new session.
 */
import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { withDeadline } from '../../lib/waiting/deadline.ts';

const MARKER_RANDOM_BYTES = 16;

/** Text: it travels in JSON, too. */
export function newMarker(): string {
  return randomBytes(MARKER_RANDOM_BYTES).toString('hex');
}

/** Reads the line, and throws away what comes, until it is released. */
export class DataLine {
  readonly #socket: Socket;
  readonly #marker: Buffer;
  readonly #marked = Promise.withResolvers<undefined>();
  #latest: Buffer = Buffer.alloc(0);

  constructor(socket: Socket, marker: string) {
    this.#socket = socket;
    this.#marker = Buffer.from(marker);
    // Nobody may wait for it.
    this.#marked.promise.catch(() => undefined);
    socket.on('data', this.#onData).on('error', this.#onEnd).on('close', this.#onEnd);
  }

  /** Resolves when the agent's marker has come by. */
  async passMarker(timeoutMs: number): Promise<void> {
    await withDeadline("the agent's marker", timeoutMs, this.#marked.promise);
  }

  /** The socket, without anybody who reads it. */
  release(): Socket {
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
