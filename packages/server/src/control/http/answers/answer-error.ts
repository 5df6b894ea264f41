/**
 * Turns an error into an answer, and never throws: whatever fails in here, the request ends with an answer or a closed
 * connection. An exception out of an error handler would end the process, and with it every tenant's requests. So this
 * module writes the whole answer itself: `reply.send` would run hooks, serializers and Fastify's own fallback, which
 * repeats the failed step, such as a status line with a phrase that Node refuses.
 *
 *   error ─► mapped, logged, written with the headers of hooks ─ fails ─► a plain 500 ─ fails ─► connection closed
 */
import { STATUS_CODES, type OutgoingHttpHeaders, type ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '@coppice/contract';
import { buildErrorBody, logError, retryAfterS, toAppError } from './error-mapper.ts';
import { toHeaders } from './raw-answer.ts';

interface ErrorAnswer {
  status: number;
  headers: OutgoingHttpHeaders;
  body: string;
}

/** Fastify's error handler, also for requests that it refuses before routing. Never throws. */
export function answerError(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const { raw } = reply;
  try {
    reply.hijack();
    if (raw.headersSent) throw error;
    write(raw, buildAnswer(error, request, reply));
  } catch (failure) {
    answerFault(failure, request, raw);
  }
}

function buildAnswer(error: unknown, request: FastifyRequest, reply: FastifyReply): ErrorAnswer {
  const mapped = toAppError(error);
  logError(mapped, request);
  const headers = toHeaders(reply);
  const retryAfter = retryAfterS(mapped);
  if (retryAfter !== undefined) headers['retry-after'] = String(retryAfter);
  // The header names a scheme, and browsers have none for the cookies of people.
  const isForPeople = request.routeOptions.url?.startsWith('/account') === true;
  if (mapped.code === 'unauthorized' && !isForPeople) headers['www-authenticate'] = 'Bearer';
  return toErrorAnswer(mapped, request, headers);
}

function toErrorAnswer(
  error: AppError,
  request: FastifyRequest,
  headers: OutgoingHttpHeaders = {},
): ErrorAnswer {
  const body = JSON.stringify(buildErrorBody(error, request));
  return {
    status: error.status,
    body,
    headers: {
      ...headers,
      // A hook sets it, but may not have run yet.
      'x-request-id': request.id,
      'content-type': 'application/json; charset=utf-8',
      'content-length': Buffer.byteLength(body),
    },
  };
}

/**
 * Writes the answer. An earlier head that failed has left marks in `raw`: its phrase, which is replaced, and perhaps
 * that there is no body. Then only the end of the connection ends this answer for certain.
 */
function write(raw: ServerResponse, { status, headers, body }: ErrorAnswer): void {
  const { 'content-length': _, ...unframed } = headers;
  const isMarked = Object.hasOwn(raw, 'statusMessage');
  const sent = isMarked ? { ...unframed, connection: 'close' } : headers;
  raw.writeHead(status, STATUS_CODES[status] ?? '', sent);
  raw.end(body);
  // Node has handed over the connection of an upgrade, and reads no further request from it.
  if (Reflect.get(raw.req, 'upgrade') === true) raw.once('finish', () => raw.socket?.end());
}

/** Answers 500 when the error handler itself has failed, or closes the connection when the head is already sent. */
function answerFault(failure: unknown, request: FastifyRequest, raw: ServerResponse): void {
  try {
    const fault = toAppError(failure);
    logError(fault, request);
    if (raw.headersSent) raw.destroy();
    else write(raw, toErrorAnswer(new AppError('internal', ''), request));
  } catch {
    raw.destroy();
  }
}
