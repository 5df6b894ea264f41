/**
 * An answer of server-sent events. What is sent waits for a client that does not read, so that its source waits, too;
 * comments keep a quiet one open through proxies that end silent connections.
 */
import { once } from 'node:events';
import type { FastifyReply } from 'fastify';
import { beginRawAnswer } from './raw-answer.ts';

const KEEP_ALIVE_MS = 15_000;
/** What may wait for a slow reader before events that can be spared are left out. */
const MAX_WAITING_BYTES = 64 << 10;
/** A client that takes nothing for so long is taken for gone. */
const STALL_DEADLINE_MS = 15 * 60_000;
/** The last one keeps a proxy from holding events back. */
const HEADERS = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-store',
  'x-accel-buffering': 'no',
};

export class EventStream {
  readonly #reply: FastifyReply;
  readonly #left = new AbortController();
  readonly #timer: NodeJS.Timeout;

  /** Sends status 200. From here on an error can only be the last event. */
  constructor(reply: FastifyReply) {
    this.#reply = reply;
    const raw = beginRawAnswer(reply, 200, HEADERS);
    raw.flushHeaders();
    this.#timer = setInterval(() => this.#keepAlive(), KEEP_ALIVE_MS);
    raw.once('close', () => {
      clearInterval(this.#timer);
      this.#left.abort();
    });
  }

  /** Aborted when the client has left, or the answer has ended. */
  get left(): AbortSignal {
    return this.#left.signal;
  }

  /** Resolves when the client has room for more, or is gone. */
  async send(event: unknown): Promise<void> {
    const { raw } = this.#reply;
    if (this.left.aborted || raw.write(`data: ${JSON.stringify(event)}\n\n`)) return;
    const signal = AbortSignal.any([this.left, AbortSignal.timeout(STALL_DEADLINE_MS)]);
    try {
      await once(raw, 'drain', { signal });
    } catch (error) {
      if (!signal.aborted) throw error;
      raw.destroy();
    }
  }

  /** For an event that the next one replaces: it is left out when the reader does not keep up. */
  sendIfRead(event: unknown): void {
    const { raw } = this.#reply;
    if (!this.left.aborted && raw.writableLength < MAX_WAITING_BYTES)
      raw.write(`data: ${JSON.stringify(event)}\n\n`);
  }

  end(): void {
    clearInterval(this.#timer);
    this.#reply.raw.end();
  }

  /** Not to a client that has yet to read: what waits for it is sign of life enough. */
  #keepAlive(): void {
    if (!this.#reply.raw.writableNeedDrain) this.#reply.raw.write(':\n\n');
  }
}
