import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';
import { destroyWhenStalled } from './destroy-when-stalled.ts';
import { beginRawAnswer } from './raw-answer.ts';

export interface BodyOptions {
  status: number;
  headers: OutgoingHttpHeaders;
  /** A client that reads nothing for this long counts as gone. */
  stallMs: number;
}

/**
 * Sends the head, and the body as `write` produces it. Resolves when the answer is over. If `write` fails, the status
 * is already sent, and the client sees a body that is cut off.
 */
export async function sendBody(
  reply: FastifyReply,
  { status, headers, stallMs }: BodyOptions,
  write: (raw: ServerResponse) => Promise<void>,
): Promise<void> {
  const raw = beginRawAnswer(reply, status, headers);
  using _stall = destroyWhenStalled(raw, stallMs);
  raw.flushHeaders();
  try {
    await write(raw);
  } catch (error) {
    reply.log.debug({ err: error }, 'an answer was cut off');
    raw.destroy();
  }
}
