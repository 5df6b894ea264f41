/**
 * A value is kept for at most this long after its expiry. The longest life divided by this is the number of buckets.
 */
const BUCKET_MS = 10_000;

/**
 * Values that are forgotten after they expire. Buckets hold them by their time of expiry:
 *
 *     expiry 0 … 10 s │ 10 … 20 s │ 20 … 30 s │        forget(now) drops whole buckets and looks at no value
 *
 * A forgotten value is never taken for a new one, even when the wall clock is set back.
 */
export class ExpiringSet {
  readonly #buckets = new Map<number, Set<string>>();
  /** Everything that expires before this is forgotten. Unix milliseconds. */
  #forgottenUntil = -Infinity;

  /** Number of values in the set. */
  get size(): number {
    return [...this.#buckets.values()].reduce((sum, bucket) => sum + bucket.size, 0);
  }

  /** Adds a value. Returns false if it is in the set, or if values with its expiry are forgotten already. */
  add(value: string, expiresAt: number): boolean {
    if (expiresAt < this.#forgottenUntil) return false;
    const bucket = this.#buckets.get(bucketOf(expiresAt)) ?? new Set();
    if (bucket.has(value)) return false;
    this.#buckets.set(bucketOf(expiresAt), bucket.add(value));
    return true;
  }

  /** Forgets buckets whose values have all expired; returns how many it looked at. */
  forget(now: number): number {
    const looked = this.#buckets.size;
    for (const index of this.#buckets.keys()) {
      const end = (index + 1) * BUCKET_MS;
      if (end > now) continue;
      this.#buckets.delete(index);
      this.#forgottenUntil = Math.max(this.#forgottenUntil, end);
    }
    return looked;
  }
}

/** Returns the bucket of an expiry. A bucket holds the values that expire from its start until before its end. */
function bucketOf(expiresAt: number): number {
  return Math.floor(expiresAt / BUCKET_MS);
}
