/**
 * Timer that ends a sandbox: after `timeoutMs` without a request, but never while one is open; or at the end of its
 * lifetime or at a given time, even if requests are open. After an outage, during which callers could not send requests,
 * all wait for a grace.
 *
 *     idle end  = open > 0 or timeout 0 ? never : max(last request's end + timeout, grace)
 *     life end  = no limit ? never : max(created + limit, grace)
 *     given end = none ? never : max(that time of the wall clock, grace)
 */
import type { Clock } from '../../time/clock.ts';

export type ExpiryReason = 'idle_timeout' | 'max_lifetime' | 'expires_at';

export interface TimeLimits {
  /** 0 disables the idle timer. */
  timeoutMs: number;
  /** Rest of the lifetime; may be negative. Without one there is no limit. */
  lifetimeLeftMs?: number;
  /** Unix milliseconds. Without one there is no such end. */
  endsAt?: number;
}

export interface IdleTimerOptions extends TimeLimits {
  clock: Clock;
  /** Time since the last request. */
  idleForMs?: number;
  /** Nothing ends before this has passed. */
  graceMs?: number;
  /** Called when the sandbox must end. The timer does not fire again before a request, a restart or a grace. */
  onExpire: (reason: ExpiryReason) => void;
}

/** setTimeout turns longer delays into 1 ms. */
const MAX_DELAY_MS = 2 ** 31 - 1;
/** The wall clock, which may be set, is read again after this time. */
const WALL_DELAY_MS = 60_000;

export class IdleTimer {
  readonly #clock: Clock;
  readonly #onExpire: (reason: ExpiryReason) => void;
  #timeoutMs = 0;
  #lifetimeEndsAt = Infinity;
  /** Unix milliseconds. */
  #endsAt = Infinity;
  #lastActiveAt: number;
  #graceUntil: number;
  /** When each open request began, the oldest first. */
  readonly #open = new Set<{ at: number }>();
  #stopped = false;
  #cancel: () => void = () => undefined;

  constructor(options: IdleTimerOptions) {
    const now = options.clock.monotonicMs();
    this.#clock = options.clock;
    this.#onExpire = options.onExpire;
    this.#lastActiveAt = now - (options.idleForMs ?? 0);
    this.#graceUntil = now + (options.graceMs ?? 0);
    this.#limit(options);
    this.#arm();
  }

  /** Notes a request: the sandbox does not end for idleness until the returned function is called. */
  open(): () => void {
    const request = { at: this.#clock.monotonicMs() };
    this.#open.add(request);
    this.#touch();
    return () => {
      if (this.#open.delete(request)) this.#touch();
    };
  }

  /** Restarts the idle time from now, with these limits. */
  restart(limits: TimeLimits): void {
    this.#limit(limits);
    this.#touch();
  }

  /** Prevents any end within the next `graceMs`. */
  grace(graceMs: number): void {
    this.#graceUntil = Math.max(this.#graceUntil, this.#clock.monotonicMs() + graceMs);
    this.#arm();
  }

  stop(): void {
    this.#stopped = true;
    this.#cancel();
  }

  get isOpen(): boolean {
    return this.#open.size > 0;
  }

  /** For how long the oldest open request has been open; 0 without any. */
  get openForMs(): number {
    const [oldest] = this.#open;
    return oldest === undefined ? 0 : this.#clock.monotonicMs() - oldest.at;
  }

  /** Milliseconds since the last request ended; 0 while one is open. */
  get idleForMs(): number {
    return this.isOpen ? 0 : Math.max(0, this.#clock.monotonicMs() - this.#lastActiveAt);
  }

  /** When it ends if no more request comes, in Unix milliseconds, or null for never. A given end is returned unchanged. */
  get endsAtMs(): number | null {
    const now = this.#readClocks();
    const { at } = this.#findEnd(now);
    return at === Infinity ? null : Math.round(now.wallMs + Math.max(0, at - now.monotonicMs));
  }

  /** Why it should end now, if it should. */
  get expired(): ExpiryReason | undefined {
    const { at, reason } = this.#findEnd();
    return !this.#stopped && at <= this.#clock.monotonicMs() ? reason : undefined;
  }

  #limit({ timeoutMs, lifetimeLeftMs = Infinity, endsAt = Infinity }: TimeLimits): void {
    this.#timeoutMs = timeoutMs;
    this.#lifetimeEndsAt = this.#clock.monotonicMs() + lifetimeLeftMs;
    this.#endsAt = endsAt;
  }

  #touch(): void {
    this.#lastActiveAt = this.#clock.monotonicMs();
    this.#arm();
  }

  #readClocks(): { monotonicMs: number; wallMs: number } {
    return { monotonicMs: this.#clock.monotonicMs(), wallMs: this.#clock.wallMs() };
  }

  #findEnd({ monotonicMs, wallMs } = this.#readClocks()): { at: number; reason: ExpiryReason } {
    const isIdle = !this.isOpen && this.#timeoutMs > 0;
    const idleEnd = isIdle ? this.#lastActiveAt + this.#timeoutMs : Infinity;
    const givenEnd = monotonicMs + this.#endsAt - wallMs;
    const ends: { at: number; reason: ExpiryReason }[] = [
      { at: this.#lifetimeEndsAt, reason: 'max_lifetime' },
      { at: givenEnd, reason: 'expires_at' },
      { at: idleEnd, reason: 'idle_timeout' },
    ];
    const { at, reason } = ends.reduce((first, end) => (end.at < first.at ? end : first));
    return { at: Math.max(at, this.#graceUntil), reason };
  }

  #arm(): void {
    this.#cancel();
    const { at } = this.#findEnd();
    if (this.#stopped || at === Infinity) return;
    const delayMs = Math.max(0, at - this.#clock.monotonicMs());
    const longestMs = this.#endsAt === Infinity ? MAX_DELAY_MS : WALL_DELAY_MS;
    this.#cancel = this.#clock.schedule(Math.min(Math.ceil(delayMs), longestMs), () => this.#check());
  }

  #check(): void {
    const reason = this.expired;
    if (reason === undefined) this.#arm();
    else this.#onExpire(reason);
  }
}
