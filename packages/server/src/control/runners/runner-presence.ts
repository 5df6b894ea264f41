/**
 * The present moment of a runner's host, as the runner last reported it. Ages of sandboxes are measured with it: the time
 * since the boot of the host that has the VM is the only clock that never steps, and control can be on another host. The
 * wall clock is that of control.
 */
import type { HostMoment } from '../../lib/host-clock.ts';
import type { Roster } from '../../lib/protocol/runner-protocol.ts';
import { momentOf, type Clock } from '../time/clock.ts';

export class RunnerPresence {
  readonly #clock: Clock;
  /** How far the runner's time since its boot is ahead of the monotonic time here. Undefined until it has answered. */
  #seen: { bootId: string; aheadMs: number } | undefined;
  /** When it last reported, by the monotonic time here. */
  #notedMs: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Notes what the runner has just reported. */
  note({ moment }: Pick<Roster, 'moment'>): void {
    const { boot_id: bootId, ms } = moment;
    this.#notedMs = this.#clock.monotonicMs();
    const aheadMs = ms - this.#notedMs;
    // A report is late by its way here, so of two the one that is further ahead is closer to the truth.
    const isBetter = this.#seen?.bootId !== bootId || aheadMs > this.#seen.aheadMs;
    if (isBetter) this.#seen = { bootId, aheadMs };
  }

  /** Time since its last report; undefined before the first one. */
  get ageMs(): number | undefined {
    return this.#notedMs === undefined ? undefined : this.#clock.monotonicMs() - this.#notedMs;
  }

  /** Before the first report this is the moment here: on the same host it is exact. */
  now(): HostMoment {
    const here = momentOf(this.#clock);
    if (this.#seen === undefined || this.#seen.bootId === here.bootId) return here;
    const { bootId, aheadMs } = this.#seen;
    return { bootId, bootMs: here.bootMs + aheadMs, wallMs: here.wallMs };
  }
}
