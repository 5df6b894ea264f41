/**
 * A JSON answer whose status line is sent long before its body is known. Meanwhile it sends white space, which JSON
 * allows before a value, so that no idle timeout between here and the client ends a long command.
 */
import type { ErrorBody } from '@coppice/contract';
import { finished } from 'node:stream/promises';
import type { FastifyReply } from 'fastify';
import { destroyWhenStalled } from './destroy-when-stalled.ts';
import { beginRawAnswer } from './raw-answer.ts';

const KEEP_ALIVE_MS = 15_000;
/** Longest time in which no byte of the answer is sent. */
const STALL_MS = 120_000;

export class DelayedJson {
  readonly #reply: FastifyReply;
  #timer: NodeJS.Timeout | undefined;

  constructor(reply: FastifyReply) {
    this.#reply = reply;
  }

  get hasBegun(): boolean {
    return this.#timer !== undefined;
  }

  /** Sends the status. After this, an error can only break off the answer. */
  begin(status = 200): void {
    const raw = beginRawAnswer(this.#reply, status, { 'content-type': 'application/json; charset=utf-8' });
    raw.flushHeaders();
    this.#timer = setInterval(() => raw.write(' '), KEEP_ALIVE_MS);
    if (raw.destroyed) clearInterval(this.#timer);
    else raw.once('close', () => clearInterval(this.#timer));
  }

  /** Sends the body. Resolves when it has left this process, which holds it until then, or when the client has left. */
  async end(value: unknown): Promise<void> {
    clearInterval(this.#timer);
    const { raw, log } = this.#reply;
    using _stall = destroyWhenStalled(raw, STALL_MS);
    raw.end(JSON.stringify(value));
    await finished(raw).catch((error: unknown) => log.debug({ err: error }, 'an answer was cut off'));
  }

  /**
   * Sends the error and breaks the connection without ending the body: a person can read the text, and no client takes
   * it for a result.
   */
  fail(body: ErrorBody): void {
    clearInterval(this.#timer);
    const { raw } = this.#reply;
    raw.write(JSON.stringify(body), () => raw.destroy());
  }
}
