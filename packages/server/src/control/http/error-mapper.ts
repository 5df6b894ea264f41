/** The one place where an error becomes an answer. */
import { AppError, type ErrorBody } from '@coppice/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { isDatabaseAway } from '../db/database-error.ts';

/** Seconds after which a retry makes sense, unless `details.retryAfterS` of the error knows better. */
const RETRY_AFTER_S: Partial<Record<AppError['code'], number>> = {
  rate_limited: 1,
  capacity: 5,
  unavailable: 2,
};

const MEBIBYTE = 1 << 20;
const INTERNAL_TEXT = 'the service failed; its log has the details under the request id';

export const JSON_BODY_BYTES = MEBIBYTE;
export const NOT_JSON = 'Content-Type: must be application/json';

/** Fastify's own errors that the caller can do something about. */
const FASTIFY_ERRORS: Record<string, () => AppError> = {
  FST_ERR_CTP_BODY_TOO_LARGE: () =>
    new AppError(
      'payload_too_large',
      `body: over ${JSON_BODY_BYTES / MEBIBYTE} MiB; send large content with files/upload`,
    ),
  FST_ERR_CTP_INVALID_MEDIA_TYPE: () => new AppError('invalid_request', NOT_JSON),
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: () =>
    new AppError('invalid_request', 'Content-Length: is not the size of the body'),
  FST_ERR_BAD_URL: () => new AppError('invalid_request', 'path: is not a valid URL path'),
};

/** What the caller is told about any error; what is nobody's business but the operator's becomes `internal`. */
export function toAppError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  if (isDatabaseAway(error))
    return new AppError('unavailable', 'the database does not answer; try again', { cause: error });
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  const known = typeof code === 'string' ? FASTIFY_ERRORS[code] : undefined;
  if (known !== undefined) return known();
  return new AppError('internal', INTERNAL_TEXT, { cause: error });
}

export function buildErrorBody(error: AppError, requestId: string): ErrorBody {
  const message = error.code === 'internal' ? INTERNAL_TEXT : error.message;
  return { error: { code: error.code, message, request_id: requestId } };
}

/** Fastify's error handler. */
export async function answerError(
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<ErrorBody> {
  const mapped = toAppError(error);
  logError(mapped, request);
  // Before the hooks ran (a URL that cannot be read) nobody has set it yet.
  reply.header('x-request-id', request.id);
  const retryAfter = mapped.details?.['retryAfterS'] ?? RETRY_AFTER_S[mapped.code];
  if (typeof retryAfter === 'number') reply.header('retry-after', retryAfter);
  if (mapped.code === 'unauthorized') reply.header('www-authenticate', 'Bearer');
  return reply
    .code(mapped.status)
    .type('application/json; charset=utf-8')
    .send(buildErrorBody(mapped, request.id));
}

/** 5xx with everything, for the operator; what the caller did wrong is in the request's own line. */
export function logError(error: AppError, request: FastifyRequest): void {
  const { code } = error;
  if (error.code === 'internal') request.log.error({ code, err: error }, 'a request failed');
  else if (error.status >= 500)
    request.log.warn({ code, reason: error.message, cause: error.cause }, 'a request failed');
  else request.log.debug({ code, reason: error.message }, 'a request was refused');
}
