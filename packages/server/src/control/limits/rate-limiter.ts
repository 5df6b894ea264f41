/**
 * Limits the request rate of each organization by a token bucket that fills evenly. Each request takes one token.
 * Buckets are in the memory of each control, whose limits are its share (share.ts); a restart fills all of them.
 */
import type { LimitsOf } from './organization-limits.ts';

/** Full buckets, which need not be kept, are removed at most this often. */
const SWEEP_MS = 60_000;
const MS_PER_S = 1000;

interface Bucket {
  tokens: number;
  /** Time at which it had them, by the clock of `take`. */
  atMs: number;
}

export interface Verdict {
  isAllowed: boolean;
  /** Most tokens that the bucket holds. */
  burst: number;
  perSecond: number;
  /** Whole requests left. */
  left: number;
  /** Seconds, rounded up: until there is one request if none is left, else until the bucket is full. */
  resetS: number;
}

export class RateLimiter {
  readonly #limitsOf: LimitsOf;
  readonly #nowMs: () => number;
  readonly #buckets = new Map<string, Bucket>();
  #sweptAtMs = 0;

  constructor(limitsOf: LimitsOf, nowMs: () => number = () => performance.now()) {
    this.#limitsOf = limitsOf;
    this.#nowMs = nowMs;
  }

  /** Number of buckets in memory. */
  get size(): number {
    return this.#buckets.size;
  }

  /** Takes a token. Returns undefined if the organization is not limited. */
  take(organizationId: string): Verdict | undefined {
    const { requestsPerSecond: perSecond, requestBurst } = this.#limitsOf(organizationId);
    if (!Number.isFinite(perSecond)) return undefined;
    const burst = Math.max(1, requestBurst);
    const atMs = this.#nowMs();
    this.#sweep(atMs);
    const before = fill(this.#buckets.get(organizationId), { atMs, perSecond, burst });
    const isAllowed = before >= 1;
    const tokens = isAllowed ? before - 1 : before;
    this.#buckets.set(organizationId, { tokens, atMs });
    const missing = tokens >= 1 ? burst - tokens : 1 - tokens;
    return {
      isAllowed,
      burst,
      perSecond,
      left: Math.floor(tokens),
      resetS: Math.max(1, Math.ceil(missing / perSecond)),
    };
  }

  #sweep(atMs: number): void {
    if (atMs - this.#sweptAtMs < SWEEP_MS) return;
    this.#sweptAtMs = atMs;
    for (const [organizationId, bucket] of this.#buckets) {
      const { requestsPerSecond: perSecond, requestBurst: burst } = this.#limitsOf(organizationId);
      if (fill(bucket, { atMs, perSecond, burst }) >= burst) this.#buckets.delete(organizationId);
    }
  }
}

function fill(
  bucket: Bucket | undefined,
  { atMs, perSecond, burst }: { atMs: number; perSecond: number; burst: number },
): number {
  if (bucket === undefined) return burst;
  return Math.min(burst, bucket.tokens + ((atMs - bucket.atMs) / MS_PER_S) * perSecond);
}
