import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';
import { destroyWhenStalled } from './destroy-when-stalled.ts';
import { beginRawAnswer } from './raw-answer.ts';

export interface BodyOptions {
  status: number;
  headers: OutgoingHttpHeaders;
  /** A client that takes nothing for so long is taken for gone. */
  stallMs: number;
}

/**
 * Answers with what is written, as it comes. Resolves when all is over: whatever fails now, the status is out, and the client
 * sees a body that is cut off.
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
