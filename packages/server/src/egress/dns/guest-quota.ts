/**
 * What one guest may ask of the DNS forwarder. The source address of a packet from a guest is checked by the
 * ruleset, so that one guest cannot use up another's share.
 */
export interface QuotaLimits {
  /** Questions per second over time, and how many at once after a pause: a package manager asks in bursts. */
  ratePerSecond: number;
  burst: number;
  inFlight: number;
  connections: number;
}

interface Use {
  tokens: number;
  updatedAtMs: number;
  inFlight: number;
  connections: number;
}

export class GuestQuota {
  readonly #limits: QuotaLimits;
  readonly #nowMs: () => number;
  readonly #uses = new Map<string, Use>();

  constructor(limits: QuotaLimits, nowMs: () => number = () => performance.now()) {
    this.#limits = limits;
    this.#nowMs = nowMs;
  }

  /** Takes a place for one question; undefined when there is none, else the function that gives it back. */
  takeQuestion(guest: string): (() => void) | undefined {
    const use = this.#useOf(guest);
    if (use.tokens < 1 || use.inFlight >= this.#limits.inFlight) return undefined;
    use.tokens -= 1;
    use.inFlight += 1;
    return once(() => {
      use.inFlight -= 1;
    });
  }

  takeConnection(guest: string): (() => void) | undefined {
    const use = this.#useOf(guest);
    if (use.connections >= this.#limits.connections) return undefined;
    use.connections += 1;
    return once(() => {
      use.connections -= 1;
    });
  }

  /** The address is free: its next owner starts afresh. */
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
