/** Error frames for a client in the middle of a stream, where no status can be sent any more. */
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
  const body = buildErrorBody(mapped, request);
  return { type: 'error', data: body.error.message, ...body };
}

/** Returns the reason of a stream that was ended on purpose, in place of the secondary error that the end causes. */
function explain(
  error: unknown,
  { keyEnd }: FastifyRequest,
  { isDraining }: Pick<OpenRequests, 'isDraining'>,
): AppError {
  if (keyEnd?.aborted === true) return toAppError(keyEnd.reason);
  if (!isDraining) return toAppError(error);
  const text = 'the service is restarting and has ended the command; run it again';
  return new AppError('unavailable', text, { cause: error });
}
