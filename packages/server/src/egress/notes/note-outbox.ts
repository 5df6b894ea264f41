/**
 * Notes on their way to the runner: sent in batches, kept until it says that they are durable. What is full says no, and
 * whoever counts goes on counting (`BlockedNotes`); nothing is dropped here.
 */
import type { EgressNote } from '../../lib/protocol/egress-protocol.ts';
import { MAX_NOTES_PER_MESSAGE, type VmNote } from '../../lib/protocol/egress-messages.ts';
import { withDeadline } from '../../lib/waiting/deadline.ts';

/** Not yet acknowledged, of all guests together. */
const MAX_UNACKNOWLEDGED = 8192;
const DURABLE_TIMEOUT_MS = 10_000;

export interface NoteOutboxOptions {
  send(id: number, notes: VmNote[]): void;
  maxUnacknowledged?: number;
  durableTimeoutMs?: number;
}

interface Waiting {
  note: VmNote;
  onDurable: (() => void) | undefined;
}

export class NoteOutbox {
  readonly #options: NoteOutboxOptions;
  readonly #max: number;
  readonly #batches = new Map<number, Waiting[]>();
  #queue: Waiting[] = [];
  #unacknowledged = 0;
  #nextId = 0;
  #isFlushPlanned = false;

  constructor(options: NoteOutboxOptions) {
    this.#options = options;
    this.#max = options.maxUnacknowledged ?? MAX_UNACKNOWLEDGED;
  }

  /** False when it is full and nothing was taken. */
  offer(vmId: string, note: EgressNote): boolean {
    if (this.#unacknowledged >= this.#max) return false;
    this.#take({ note: { vmId, note }, onDurable: undefined });
    return true;
  }

  /** For what cannot be offered again, and is bounded by its caller. */
  force(vmId: string, note: EgressNote): void {
    this.#take({ note: { vmId, note }, onDurable: undefined });
  }

  /** Resolves once the note is durable. It is sent in any case, unless the outbox is full. */
  async offerDurably(vmId: string, note: EgressNote): Promise<void> {
    if (this.#unacknowledged >= this.#max) throw new Error('too many notes wait for the runner');
    const { promise, resolve } = Promise.withResolvers<undefined>();
    this.#take({ note: { vmId, note }, onDurable: () => resolve(undefined) });
    const timeoutMs = this.#options.durableTimeoutMs ?? DURABLE_TIMEOUT_MS;
    await withDeadline('acknowledgement of a note by the runner', timeoutMs, promise);
  }

  /** The runner has the batch on its disk. Unknown ids are passed over. */
  acknowledge(id: number): void {
    const batch = this.#batches.get(id);
    if (batch === undefined) return;
    this.#batches.delete(id);
    this.#unacknowledged -= batch.length;
    for (const { onDurable } of batch) onDurable?.();
  }

  /** Sends what waits now: before an answer that must come after it. */
  flush(): void {
    while (this.#queue.length > 0) {
      const batch = this.#queue.slice(0, MAX_NOTES_PER_MESSAGE);
      this.#queue = this.#queue.slice(MAX_NOTES_PER_MESSAGE);
      const id = this.#nextId++;
      this.#batches.set(id, batch);
      this.#options.send(
        id,
        batch.map(({ note }) => note),
      );
    }
  }

  #take(waiting: Waiting): void {
    this.#queue.push(waiting);
    this.#unacknowledged += 1;
    if (this.#isFlushPlanned) return;
    this.#isFlushPlanned = true;
    setImmediate(() => {
      this.#isFlushPlanned = false;
      this.flush();
    });
  }
}
