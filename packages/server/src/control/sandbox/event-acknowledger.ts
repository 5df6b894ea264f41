import { enterRecordStep } from './steps.ts';

/**
 * Acknowledges events of one connection to the runner. Each is handled without waiting for others; acknowledged they are in
 * their order, as each acknowledgement covers all before it, and many that are handled together by one.
 */
export class EventAcknowledger {
  readonly #acknowledge: (seq: number) => Promise<void>;
  /** Settles when all that came so far are handled. */
  #handled: Promise<unknown> = Promise.resolve();
  #handledSeq = 0;
  #acknowledgedSeq = 0;
  #work: Promise<void> | undefined;

  constructor(acknowledge: (seq: number) => Promise<void>) {
    this.#acknowledge = acknowledge;
  }

  /** Rejects when it, or one before it, could not be handled or acknowledged: it will be told again. */
  async take(seq: number, handling: Promise<void>): Promise<void> {
    const handled = Promise.all([this.#handled, handling]);
    this.#handled = handled;
    await handled;
    this.#handledSeq = seq;
    this.#work ??= this.#acknowledgeAll();
    await this.#work;
  }

  async #acknowledgeAll(): Promise<void> {
    try {
      while (this.#acknowledgedSeq < this.#handledSeq) {
        const seq = this.#handledSeq;
        await enterRecordStep('record.acknowledge');
        await this.#acknowledge(seq);
        this.#acknowledgedSeq = seq;
      }
    } finally {
      // At once, so that whoever comes next begins anew.
      this.#work = undefined;
    }
  }
}
