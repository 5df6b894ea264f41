import type { FastifyReply } from 'fastify';

/** Aborts when the client has left, or the answer has ended. */
export function whenLeft({ raw }: FastifyReply): AbortSignal {
  const left = new AbortController();
  if (raw.destroyed) left.abort();
  else raw.once('close', () => left.abort());
  return left.signal;
}
