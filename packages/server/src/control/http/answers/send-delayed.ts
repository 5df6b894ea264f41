import type { FastifyReply, FastifyRequest } from 'fastify';
import { DelayedJson } from './delayed-json.ts';
import { buildErrorBody, logError, toAppError } from './error-mapper.ts';

/** Sends the status 201 at once, and the body when it is known. An error after the status breaks off the answer. */
export async function sendDelayed(
  request: FastifyRequest,
  reply: FastifyReply,
  work: () => Promise<unknown>,
): Promise<void> {
  const answer = new DelayedJson(reply);
  answer.begin(201);
  try {
    await answer.end(await work());
  } catch (error) {
    const mapped = toAppError(error);
    logError(mapped, request);
    answer.fail(buildErrorBody(mapped, request));
  }
}
