/** Answers that are written without Fastify, because they are not there as a whole: streams, files, what a guest sends. */
import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';

/**
 * Sends the head, with what hooks have set. Throws while Fastify can still answer with an error; after it all that goes
 * wrong can only break the answer off, which is for the caller to do.
 */
export function beginRawAnswer(
  reply: FastifyReply,
  status: number,
  headers: OutgoingHttpHeaders,
): ServerResponse {
  const { raw } = reply;
  raw.writeHead(status, { ...toHeaders(reply), ...headers });
  reply.hijack();
  raw.on('error', (error) => reply.log.debug({ err: error }, 'an answer broke'));
  return raw;
}

/** Headers that hooks have set. */
export function toHeaders(reply: FastifyReply): OutgoingHttpHeaders {
  const headers: OutgoingHttpHeaders = {};
  for (const [name, value] of Object.entries(reply.getHeaders()))
    if (value !== undefined) headers[name] = value;
  return headers;
}
