/**
 * Shares of limits that several controls enforce together, each from its own memory. A share is at least 1, so with more
 * controls than the limit the sum may be above it.
 */
import type { Limits, LimitsOf } from './organization-limits.ts';

/** Returns the share of this control. */
export type Share = (limit: number) => number;

export function shareLimit(limit: number, controls: number): number {
  return Math.min(limit, Math.max(1, Math.floor(limit / controls)));
}

/** Shares the limits that are counted in memory. The others are counted in SQL, where all controls meet. */
export function shareLimits(limitsOf: LimitsOf, share: Share): LimitsOf {
  return (organizationId): Limits => {
    const limits = limitsOf(organizationId);
    return {
      ...limits,
      openRequests: share(limits.openRequests),
      openStreams: share(limits.openStreams),
      requestsPerSecond: share(limits.requestsPerSecond),
      requestBurst: share(limits.requestBurst),
    };
  };
}
