/** Keeps a guest from running while there are reasons for it. The next call repeats an order that failed. */
import { SerialQueue } from '../../lib/waiting/serial-queue.ts';

export interface HeldGuest {
  /** Stops the guest, so that it writes nothing; `reason` is for its callers. */
  hold: (reason: string) => Promise<void>;
  goOn: () => Promise<void>;
}

export class GuestHold {
  readonly #find: () => HeldGuest | undefined;
  readonly #reasons = new Set<string>();
  readonly #orders = new SerialQueue();
  /** The last order that the guest carried out; undefined if one failed, which may have stopped the guest. */
  #done: 'run' | 'stop' | undefined = 'run';

  constructor(find: () => HeldGuest | undefined) {
    this.#find = find;
  }

  /** The oldest reason; undefined if the guest may run. */
  get reason(): string | undefined {
    const [reason] = this.#reasons;
    return reason;
  }

  has(reason: string): boolean {
    return this.#reasons.has(reason);
  }

  /** Also without a guest: one that joins later is held by the next order. */
  add(reason: string): Promise<void> {
    this.#reasons.add(reason);
    return this.order();
  }

  delete(reason: string): Promise<void> {
    this.#reasons.delete(reason);
    return this.order();
  }

  /** Stops or continues the guest, if it does not stand or run as it should. */
  order(): Promise<void> {
    return this.#orders.run(() => this.#order());
  }

  async #order(): Promise<void> {
    const guest = this.#find();
    const { reason } = this;
    const wanted = reason === undefined ? 'run' : 'stop';
    if (guest === undefined || this.#done === wanted) return;
    this.#done = undefined;
    if (reason === undefined) await guest.goOn();
    else await guest.hold(reason);
    this.#done = wanted;
  }
}
