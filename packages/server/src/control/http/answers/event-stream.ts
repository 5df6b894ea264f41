/**
 * An answer of server-sent events. Sending waits for a client that does not read, so that the source waits, too.
 * Comments keep a quiet stream open through proxies that end silent connections.
 */
import { once } from 'node:events';
import type { FastifyReply } from 'fastify';
import { beginRawAnswer } from './raw-answer.ts';
import { whenLeft } from './when-left.ts';

const KEEP_ALIVE_MS = 15_000;
/** Bytes that may wait for a slow reader before replaceable events are left out. */
const MAX_WAITING_BYTES = 64 << 10;
/** A client that reads nothing for this long counts as gone. */
const STALL_DEADLINE_MS = 15 * 60_000;
/** The last one keeps proxies from buffering events. */
const HEADERS = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-store',
  'x-accel-buffering': 'no',
};

export class EventStream {
  /** Aborts when the client has left, or the answer has ended. */
  readonly left: AbortSignal;
  readonly #reply: FastifyReply;
  readonly #timer: NodeJS.Timeout;

  /** Sends status 200. After this, an error can only be the last event. */
  constructor(reply: FastifyReply) {
    this.#reply = reply;
    const raw = beginRawAnswer(reply, 200, HEADERS);
    raw.flushHeaders();
    this.#timer = setInterval(() => this.#keepAlive(), KEEP_ALIVE_MS);
    this.left = whenLeft(reply);
    // The client may have left before there was anything to send.
    if (this.left.aborted) clearInterval(this.#timer);
    this.left.addEventListener('abort', () => clearInterval(this.#timer), { once: true });
  }

  /**
   * Sends an event, with the id from which a client continues. Resolves when the client has room for more, or is gone.
   */
  async send(event: unknown, id?: number): Promise<void> {
    const { raw } = this.#reply;
    const head = id === undefined ? '' : `id: ${id}\n`;
    if (this.left.aborted || raw.write(`${head}data: ${JSON.stringify(event)}\n\n`)) return;
    const signal = AbortSignal.any([this.left, AbortSignal.timeout(STALL_DEADLINE_MS)]);
    try {
      await once(raw, 'drain', { signal });
    } catch (error) {
      if (!signal.aborted) throw error;
      raw.destroy();
    }
  }

  /** Sends an event that the next one replaces: it is left out when the reader does not keep up. */
  sendIfRead(event: unknown): void {
    const { raw } = this.#reply;
    if (!this.left.aborted && raw.writableLength < MAX_WAITING_BYTES)
      raw.write(`data: ${JSON.stringify(event)}\n\n`);
  }

  end(): void {
    clearInterval(this.#timer);
    this.#reply.raw.end();
  }

  /** Sends no comment to a client that has yet to read: the waiting data keeps the connection alive. */
  #keepAlive(): void {
    if (!this.#reply.raw.writableNeedDrain) this.#reply.raw.write(':\n\n');
  }
}
