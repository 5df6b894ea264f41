/** What a client is told in the middle of a stream, where no status can be sent any more. */
import { AppError, type ExecFrame } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import { buildErrorBody, logError, toAppError } from './error-mapper.ts';
import type { OpenRequests } from './open-requests.ts';

export function buildErrorFrame(
  error: unknown,
  request: FastifyRequest,
  openRequests: Pick<OpenRequests, 'isDraining'>,
): Extract<ExecFrame, { type: 'error' }> {
  const mapped = openRequests.isDraining
    ? new AppError('unavailable', 'the service restarts, and the command was ended; run it again', {
        cause: error,
      })
    : toAppError(error);
  logError(mapped, request);
  const body = buildErrorBody(mapped, request.id);
  return { type: 'error', data: body.error.message, ...body };
}
