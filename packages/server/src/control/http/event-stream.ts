/** An answer of server-sent events. Comments keep it alive while nothing happens. */
import type { FastifyReply } from 'fastify';
import { toHeaders } from './delayed-json.ts';

const KEEP_ALIVE_MS = 15_000;
/** What may wait for a slow reader before events that can be spared are left out. */
const MAX_WAITING_BYTES = 64 << 10;
/** The last one keeps a proxy from holding events back. */
const HEADERS = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-store',
  'x-accel-buffering': 'no',
};

export class EventStream {
  readonly #reply: FastifyReply;
  #timer: NodeJS.Timeout | undefined;

  constructor(reply: FastifyReply) {
    this.#reply = reply;
  }

  /** Sends status 200; from here on errors are events. */
  begin(): void {
    this.#reply.hijack();
    const { raw, log } = this.#reply;
    raw.on('error', (error) => log.debug({ err: error }, 'an event stream broke'));
    raw.writeHead(200, { ...toHeaders(this.#reply), ...HEADERS });
    raw.flushHeaders();
    this.#timer = setInterval(() => this.#write(':\n\n'), KEEP_ALIVE_MS);
    raw.once('close', () => clearInterval(this.#timer));
  }

  /** `data` is one line. */
  send(data: string): void {
    this.#write(`data: ${data}\n\n`);
  }

  /** For an event that the next one replaces: it is left out when the reader does not keep up. */
  sendIfRead(data: string): void {
    if (this.#reply.raw.writableLength < MAX_WAITING_BYTES) this.send(data);
  }

  end(): void {
    clearInterval(this.#timer);
    this.#reply.raw.end();
  }

  #write(text: string): void {
    if (!this.#reply.raw.destroyed) this.#reply.raw.write(text);
  }
}
