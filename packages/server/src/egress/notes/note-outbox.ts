/**
 * Sends notes to the runner in batches and keeps them until the runner reports that they are durable. A full outbox
 * rejects new notes, and the caller (`BlockedNotes`) keeps counting them. The outbox drops nothing.
 */
import type { EgressNote } from '../../lib/protocol/egress-protocol.ts';
import { MAX_NOTES_PER_MESSAGE, type VmNote } from '../../lib/protocol/egress-messages.ts';
import { withDeadline } from '../../lib/waiting/deadline.ts';

/** Maximum number of notes of all guests that are not yet acknowledged. */
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

/** The queue of notes described above. */
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

  /** Accepts a note. Returns false if the outbox is full. */
  offer(vmId: string, note: EgressNote): boolean {
    if (this.#unacknowledged >= this.#max) return false;
    this.#take({ note: { vmId, note }, onDurable: undefined });
    return true;
  }

  /**
   * Accepts a note even if the outbox is full. For notes that cannot be offered again; their callers bound their
   * number.
   */
  force(vmId: string, note: EgressNote): void {
    this.#take({ note: { vmId, note }, onDurable: undefined });
  }

  /**
   * Resolves when the note is durable. Rejects if the outbox is full, in which case the note is not sent, or if the
   * runner does not acknowledge the note in time.
   */
  async offerDurably(vmId: string, note: EgressNote): Promise<void> {
    if (this.#unacknowledged >= this.#max) throw new Error('too many notes wait for the runner');
    const { promise, resolve } = Promise.withResolvers<undefined>();
    this.#take({ note: { vmId, note }, onDurable: () => resolve(undefined) });
    const timeoutMs = this.#options.durableTimeoutMs ?? DURABLE_TIMEOUT_MS;
    await withDeadline('acknowledgement of a note by the runner', timeoutMs, promise);
  }

  /** Marks a batch as durable: the runner has it on its disk. Unknown ids are ignored. */
  acknowledge(id: number): void {
    const batch = this.#batches.get(id);
    if (batch === undefined) return;
    this.#batches.delete(id);
    this.#unacknowledged -= batch.length;
    for (const { onDurable } of batch) onDurable?.();
  }

  /** Sends all waiting notes now. Call it before an answer that must follow them. */
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
