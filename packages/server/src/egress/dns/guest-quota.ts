/**
 * Limits on the use of the DNS forwarder by one guest. The ruleset checks the source address of each packet, so that
 * one guest cannot use up the share of another.
 */
export interface QuotaLimits {
  /** Average questions per second. */
  ratePerSecond: number;
  /** Questions at once after a pause: a package manager asks in bursts. */
  burst: number;
  /** Unanswered questions. */
  inFlight: number;
  /** Open TCP connections. */
  connections: number;
}

interface Use {
  tokens: number;
  updatedAtMs: number;
  inFlight: number;
  connections: number;
}

/** Tracks the use of each guest by its address. */
export class GuestQuota {
  readonly #limits: QuotaLimits;
  readonly #nowMs: () => number;
  readonly #uses = new Map<string, Use>();

  constructor(limits: QuotaLimits, nowMs: () => number = () => performance.now()) {
    this.#limits = limits;
    this.#nowMs = nowMs;
  }

  /** Takes a slot for one question. Returns the function that releases it, or undefined if there is no free slot. */
  takeQuestion(guest: string): (() => void) | undefined {
    const use = this.#useOf(guest);
    if (use.tokens < 1 || use.inFlight >= this.#limits.inFlight) return undefined;
    use.tokens -= 1;
    use.inFlight += 1;
    return once(() => {
      use.inFlight -= 1;
    });
  }

  /** Takes a slot for one connection. Returns the function that releases it, or undefined if there is no free slot. */
  takeConnection(guest: string): (() => void) | undefined {
    const use = this.#useOf(guest);
    if (use.connections >= this.#limits.connections) return undefined;
    use.connections += 1;
    return once(() => {
      use.connections -= 1;
    });
  }

  /** Deletes the use of an address that becomes free, so that its next owner starts with a full quota. */
  forget(guest: string): void {
    this.#uses.delete(guest);
  }

  #useOf(guest: string): Use {
    const now = this.#nowMs();
    const { burst, ratePerSecond } = this.#limits;
    const use = this.#uses.get(guest) ?? { tokens: burst, updatedAtMs: now, inFlight: 0, connections: 0 };
    use.tokens = Math.min(burst, use.tokens + ((now - use.updatedAtMs) / 1000) * ratePerSecond);
    use.updatedAtMs = now;
    this.#uses.set(guest, use);
    return use;
  }
}

function once(action: () => void): () => void {
  let isDone = false;
  return () => {
    if (!isDone) action();
    isDone = true;
  };
}
