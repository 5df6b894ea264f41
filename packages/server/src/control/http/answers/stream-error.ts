/** What a client is told in the middle of a stream, where no status can be sent any more. */
import { AppError, type ExecFrame } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import { buildErrorBody, logError, toAppError } from './error-mapper.ts';
import type { OpenRequests } from '../access/open-requests.ts';

export function buildErrorFrame(
  error: unknown,
  request: FastifyRequest,
  openRequests: Pick<OpenRequests, 'isDraining'>,
): Extract<ExecFrame, { type: 'error' }> {
  const mapped = explain(error, request, openRequests);
  logError(mapped, request);
  const body = buildErrorBody(mapped, request.id);
  return { type: 'error', data: body.error.message, ...body };
}

/** What was ended on purpose fails in some way of its own, which is not what the client should hear. */
function explain(
  error: unknown,
  { keyEnd }: FastifyRequest,
  { isDraining }: Pick<OpenRequests, 'isDraining'>,
): AppError {
  if (keyEnd?.aborted === true) return toAppError(keyEnd.reason);
  if (!isDraining) return toAppError(error);
  const text = 'the service restarts, and the command was ended; run it again';
  return new AppError('unavailable', text, { cause: error });
}
