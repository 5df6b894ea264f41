/** Time, as the timers see it; tests bring their own. */
export interface Clock {
  /** Milliseconds that never step back: what intervals are measured with. */
  monotonicMs(): number;
  /** Unix milliseconds: what is stored and shown. */
  wallMs(): number;
  /** Calls `action` once after `delayMs`; the result cancels it. */
  schedule(delayMs: number, action: () => void): () => void;
}

export const SYSTEM_CLOCK: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  schedule: (delayMs, action) => {
    const timer = setTimeout(action, delayMs);
    return () => clearTimeout(timer);
  },
};
