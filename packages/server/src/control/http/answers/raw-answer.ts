/** Answers that are written without Fastify, because they come in pieces: streams, files, answers of a guest. */
import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';

/** A pipeline alone adds several of one event to what hooks, limits and the log listen for. */
const MAX_LISTENERS = 30;

/**
 * Sends the head, with the headers that hooks have set. It throws only while Fastify can still answer with an error.
 * After it, a failure can only break off the answer, and the caller must do that.
 */
export function beginRawAnswer(
  reply: FastifyReply,
  status: number,
  headers: OutgoingHttpHeaders,
): ServerResponse {
  const { raw } = reply;
  raw.writeHead(status, { ...toHeaders(reply), ...headers });
  reply.hijack();
  raw.setMaxListeners(MAX_LISTENERS);
  raw.on('error', (error) => reply.log.debug({ err: error }, 'an answer broke'));
  return raw;
}

/** Returns the headers that hooks have set. */
export function toHeaders(reply: FastifyReply): OutgoingHttpHeaders {
  const headers: OutgoingHttpHeaders = {};
  for (const [name, value] of Object.entries(reply.getHeaders()))
    if (value !== undefined) headers[name] = value;
  return headers;
}
