import type { EventPlace } from '../../lib/protocol/runner-protocol.ts';
import { enterRecordStep } from './record/steps.ts';

/**
 * Acknowledges events of one connection to the runner. Events are handled in parallel but acknowledged in their order,
 * as an acknowledgement covers all earlier events. One acknowledgement can cover many handled events.
 */
export class EventAcknowledger {
  readonly #acknowledge: (place: EventPlace) => Promise<void>;
  /** Settles when all events so far are handled. */
  #handled: Promise<unknown> = Promise.resolve();
  #last: EventPlace | undefined;
  #acknowledged: EventPlace | undefined;
  #work: Promise<void> | undefined;

  constructor(acknowledge: (place: EventPlace) => Promise<void>) {
    this.#acknowledge = acknowledge;
  }

  /** Rejects if this event or an earlier one could not be handled or acknowledged: the runner sends it again. */
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
      // Synchronous with the end of the loop, so that the next event starts a new one.
      this.#work = undefined;
    }
  }
}
