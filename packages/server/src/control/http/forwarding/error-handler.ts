import type { FastifyReply, FastifyRequest } from 'fastify';
import { ElsewhereError } from '../../placement/elsewhere.ts';
import { endOf } from '../access/end-with-key.ts';
import type { OpenRequests } from '../access/open-requests.ts';
import { answerError } from '../answers/answer-error.ts';
import { isForwarded, TAKING_OVER } from '../requests/forwarded-request.ts';
import type { RequestForwarder } from './request-forwarder.ts';

type ErrorHandler = (error: unknown, request: FastifyRequest, reply: FastifyReply) => void;

interface Parts {
  /** Undefined for a control that is alone. */
  requestForwarder: RequestForwarder | undefined;
  openRequests: OpenRequests;
}

/** Answers errors, and forwards requests that need another control, or a runner of one. A request is forwarded once. */
export function buildErrorHandler({ requestForwarder: forwarder, openRequests }: Parts): ErrorHandler {
  if (forwarder === undefined) return answerError;
  return (error, request, reply) => {
    if (!(error instanceof ElsewhereError)) return answerError(error, request, reply);
    if (isForwarded(request.raw) && error.refusal === undefined) reply.header(TAKING_OVER, error.at);
    if (isForwarded(request.raw) || reply.raw.headersSent)
      return answerError(error.refusal ?? error, request, reply);
    void forward({ forwarder, openRequests }, error.at, { request, reply });
    return undefined;
  };
}

/** Never rejects. */
async function forward(
  { forwarder, openRequests }: { forwarder: RequestForwarder; openRequests: OpenRequests },
  at: string,
  { request, reply }: { request: FastifyRequest; reply: FastifyReply },
): Promise<void> {
  reply.hijack();
  const over = endOf(request, openRequests);
  const work = (): Promise<void> => forwarder.forward(at, request, reply, over);
  try {
    // Those of a preview before its visitor is known count nowhere.
    await (request.organizationId === '' ? work() : openRequests.stream(request.organizationId, work));
  } catch (error) {
    answerError(error, request, reply);
  }
}
