/** Applies the rate limit and reports it in the header fields of the IETF's draft on rate limits, revision 11. */
import { AppError } from '@coppice/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { isForwarded } from '../requests/forwarded-request.ts';
import type { HttpParts } from '../parts.ts';

/** Throws `rate_limited`. Call after authentication: an unknown caller has no share to use up. */
export function limitRate(
  { organizationId, raw }: FastifyRequest,
  reply: FastifyReply,
  { rateLimiter }: Pick<HttpParts, 'rateLimiter'>,
): void {
  // The control that has forwarded it has counted it.
  if (isForwarded(raw)) return;
  const verdict = rateLimiter.take(organizationId);
  if (verdict === undefined) return;
  const { isAllowed, burst, perSecond, left, resetS } = verdict;
  const windowS = Math.max(1, Math.round(burst / perSecond));
  reply.header('ratelimit-policy', `"organization";q=${burst};w=${windowS}`);
  reply.header('ratelimit', `"organization";r=${left};t=${resetS}`);
  if (isAllowed) return;
  throw new AppError(
    'rate_limited',
    `the organization is limited to ${perSecond} requests a second and bursts of ${burst}; try again in ${resetS} s`,
  );
}
