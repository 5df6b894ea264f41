import type { EventPlace } from '../../lib/protocol/runner-protocol.ts';
import { enterRecordStep } from './record/steps.ts';

/**
 * Acknowledges events of one connection to the runner. Each is handled without waiting for others; acknowledged they are in
 * their order, as each acknowledgement covers all before it, and many that are handled together by one.
 */
export class EventAcknowledger {
  readonly #acknowledge: (place: EventPlace) => Promise<void>;
  /** Settles when all that came so far are handled. */
  #handled: Promise<unknown> = Promise.resolve();
  #last: EventPlace | undefined;
  #acknowledged: EventPlace | undefined;
  #work: Promise<void> | undefined;

  constructor(acknowledge: (place: EventPlace) => Promise<void>) {
    this.#acknowledge = acknowledge;
  }

  /** Rejects when it, or one before it, could not be handled or acknowledged: it will be told again. */
  async take(place: EventPlace, handling: Promise<void>): Promise<void> {
    const handled = Promise.all([this.#handled, handling]);
    this.#handled = handled;
    await handled;
    this.#last = place;
    this.#work ??= this.#acknowledgeAll();
    await this.#work;
  }

  async #acknowledgeAll(): Promise<void> {
    try {
      while (this.#last !== undefined && this.#last !== this.#acknowledged) {
        const place = this.#last;
        await enterRecordStep('record.acknowledge');
        await this.#acknowledge(place);
        this.#acknowledged = place;
      }
    } finally {
      // At once, so that whoever comes next begins anew.
      this.#work = undefined;
    }
  }
}
