/** The rate limit, as answers tell it: the fields of the IETF's draft on rate limits, in its 11th revision. */
import { AppError } from '@coppice/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { HttpParts } from '../parts.ts';

/** Throws `rate_limited`. Only after authentication: who is unknown has no share to use up. */
export function limitRate(
  { organizationId }: FastifyRequest,
  reply: FastifyReply,
  { rateLimiter }: Pick<HttpParts, 'rateLimiter'>,
): void {
  const verdict = rateLimiter.take(organizationId);
  if (verdict === undefined) return;
  const { isAllowed, burst, perSecond, left, resetS } = verdict;
  const windowS = Math.max(1, Math.round(burst / perSecond));
  reply.header('ratelimit-policy', `"organization";q=${burst};w=${windowS}`);
  reply.header('ratelimit', `"organization";r=${left};t=${resetS}`);
  if (isAllowed) return;
  throw new AppError(
    'rate_limited',
    `the organization may ask ${perSecond} times a second, ${burst} times at once; try again in ${resetS} s`,
  );
}
