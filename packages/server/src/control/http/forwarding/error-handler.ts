import type { FastifyReply, FastifyRequest } from 'fastify';
import { ElsewhereError } from '../../placement/elsewhere.ts';
import { answerError } from '../answers/answer-error.ts';
import { isForwarded } from './forwarded-request.ts';
import type { RequestForwarder } from './request-forwarder.ts';

type ErrorHandler = (error: unknown, request: FastifyRequest, reply: FastifyReply) => void;

/** Answers errors, and forwards requests whose sandbox is at a runner of another control. A request is forwarded once. */
export function buildErrorHandler(forwarder: RequestForwarder | undefined): ErrorHandler {
  if (forwarder === undefined) return answerError;
  return (error, request, reply) => {
    if (!(error instanceof ElsewhereError)) return answerError(error, request, reply);
    if (isForwarded(request.raw) || reply.raw.headersSent)
      return answerError(error.refusal ?? error, request, reply);
    reply.hijack();
    forwarder
      .forward(error.runnerId, request, reply)
      .catch((failure: unknown) => answerError(failure, request, reply));
    return undefined;
  };
}
