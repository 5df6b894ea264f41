import type { FastifyReply, FastifyRequest } from 'fastify';
import { ElsewhereError } from '../../placement/elsewhere.ts';
import { answerError } from '../answers/answer-error.ts';
import { isForwarded } from '../requests/forwarded-request.ts';
import type { RequestForwarder } from './request-forwarder.ts';

type ErrorHandler = (error: unknown, request: FastifyRequest, reply: FastifyReply) => void;

/** Answers errors, and forwards requests whose sandbox is at a runner of another control. A request is forwarded once. */
export function buildErrorHandler(forwarder: RequestForwarder | undefined): ErrorHandler {
  if (forwarder === undefined) return answerError;
  return (error, request, reply) => {
    if (!(error instanceof ElsewhereError)) answerError(error, request, reply);
    else if (isForwarded(request.raw) || reply.raw.headersSent)
      answerError(error.refusal ?? error, request, reply);
    else void forward(forwarder, error.runnerId, { request, reply });
  };
}

/** Never rejects. */
async function forward(
  forwarder: RequestForwarder,
  runnerId: string,
  { request, reply }: { request: FastifyRequest; reply: FastifyReply },
): Promise<void> {
  reply.hijack();
  try {
    await forwarder.forward(runnerId, request, reply);
  } catch (error) {
    answerError(error, request, reply);
  }
}
