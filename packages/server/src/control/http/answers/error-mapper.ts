/** Maps errors to the answer that a caller receives and to the lines of the log. */
import { AppError, KeyRegion, type ErrorBody } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import { runInSpan } from '../../../lib/tracing/tracing.ts';
import { isDatabaseAway } from '../../db/database-error.ts';

/** Seconds after which a retry makes sense, unless the error gives `details.retryAfterS`. */
const RETRY_AFTER_S: Partial<Record<AppError['code'], number>> = {
  rate_limited: 1,
  capacity: 5,
  unavailable: 2,
};

const MEBIBYTE = 1 << 20;
const INTERNAL_TEXT = 'the service failed; its log has the details under the request id';

export const JSON_BODY_BYTES = MEBIBYTE;
export const NOT_JSON = 'Content-Type: must be application/json';

/** Fastify's errors that need a message of this service; {@link isClientFault} finds the others. */
const FASTIFY_ERRORS: Record<string, () => AppError> = {
  FST_ERR_CTP_BODY_TOO_LARGE: () =>
    new AppError(
      'payload_too_large',
      `body: over ${JSON_BODY_BYTES / MEBIBYTE} MiB; send large content with files/upload`,
    ),
  FST_ERR_CTP_INVALID_MEDIA_TYPE: () => new AppError('invalid_request', NOT_JSON),
  FST_ERR_ROUTE_MISSING_CONTENT_TYPE: () =>
    new AppError('invalid_request', 'Content-Type: is required for QUERY'),
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: () =>
    new AppError('invalid_request', 'Content-Length: is not the size of the body'),
  FST_ERR_BAD_URL: () => new AppError('invalid_request', 'path: is not a valid URL path'),
  FST_ERR_MAX_PARAM_LENGTH: () => new AppError('invalid_request', 'path: a segment is too long'),
};

/** Returns the error that the caller receives. Errors that concern only the operator become `internal`. */
export function toAppError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  const known = typeof code === 'string' ? FASTIFY_ERRORS[code] : undefined;
  if (known !== undefined) return known();
  if (isClientFault(error))
    return new AppError('invalid_request', 'the request cannot be read', { cause: error });
  if (isDatabaseAway(error))
    return new AppError('unavailable', 'the database does not answer; try again', { cause: error });
  return new AppError('internal', INTERNAL_TEXT, { cause: error });
}

/** Only Fastify and its plugins set a status on errors: for a body that breaks off, or a request that they refuse. */
function isClientFault(error: unknown): boolean {
  const status: unknown = error instanceof Error ? Reflect.get(error, 'statusCode') : undefined;
  return typeof status === 'number' && status >= 400 && status < 500;
}

export function buildErrorBody(
  error: AppError,
  { id, span }: Pick<FastifyRequest, 'id'> & Partial<Pick<FastifyRequest, 'span'>>,
): ErrorBody {
  const message = error.code === 'internal' ? INTERNAL_TEXT : error.message;
  const trace = span == null ? {} : { trace_id: span.context.traceId };
  return { error: { code: error.code, message, request_id: id, ...trace, ...findRegion(error) } };
}

function findRegion({ code, details }: AppError): { region?: KeyRegion } {
  const region = code === 'unauthorized' ? KeyRegion.safeParse(details?.['region']).data : undefined;
  return region === undefined ? {} : { region };
}

/** Seconds after which the same request may be retried; undefined when a retry does not help. */
export function retryAfterS({ code, details }: AppError): number | undefined {
  const own: unknown = details?.['retryAfterS'];
  return typeof own === 'number' ? own : RETRY_AFTER_S[code];
}

/**
 * Logs a 5xx with all details, for the operator, and counts every error. A caller's mistake is in the log line of its
 * request. Never throws: an error that cannot be logged must not keep its caller from an answer.
 */
export function logError(error: AppError, request: FastifyRequest): void {
  try {
    request.span?.fail(error);
    runInSpan(request.span ?? undefined, () => writeLog(error, request));
    request.server.countError(error.code);
  } catch {
    process.emitWarning(`a failed request could not be logged, request id ${request.id}`);
  }
}

function writeLog(error: AppError, { log }: FastifyRequest): void {
  const { code } = error;
  if (error.code === 'internal') log.error({ code, err: error }, 'a request failed');
  else if (error.status >= 500)
    log.warn({ code, reason: error.message, cause: error.cause }, 'a request failed');
  else log.debug({ code, reason: error.message }, 'a request was refused');
}
