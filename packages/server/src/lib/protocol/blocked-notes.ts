/**
 * The refusals of one guest. The first refusal of a destination and reason is noted at once, later ones at most every 5
 * s with their count. If a guest tries more than MAX_DESTINATIONS, the rest is noted by reason alone.
 *
 *   new ──note──► quiet ──refusal──► counting ──5 s: note──► quiet ──5 s──► forgotten
 *
 * Refusals that the outbox rejects stay counted, so every refusal is in the count of some note.
 */
import type { EgressNote } from './egress-protocol.ts';

const NOTE_INTERVAL_MS = 5000;
const MAX_DESTINATIONS = 256;

type BlockedNote = Extract<EgressNote, { event: 'network.blocked' }>;
type BlockedData = BlockedNote['data'];

interface Tally {
  destination: Omit<BlockedData, 'count'>;
  count: number;
  /** Time of the first refusal in `count`. */
  ts: string;
  quietUntilMs: number;
}

export interface BlockedNotesOptions {
  /** Returns false if the outbox does not accept the note. */
  offer(note: BlockedNote): boolean;
  intervalMs?: number;
}

export class BlockedNotes {
  readonly #options: BlockedNotesOptions;
  readonly #intervalMs: number;
  readonly #tallies = new Map<string, Tally>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: BlockedNotesOptions) {
    this.#options = options;
    this.#intervalMs = options.intervalMs ?? NOTE_INTERVAL_MS;
  }

  add({ ts, data: { count, ...destination } }: BlockedNote): void {
    const tally = this.#tallyOf(destination);
    if (tally.count === 0) tally.ts = ts;
    tally.count += count;
    if (tally.quietUntilMs <= performance.now()) this.#tell(tally);
    this.#timer ??= setTimeout(() => this.#onTimer(), this.#intervalMs).unref();
  }

  /** Ends the counting. Returns the remaining refusals, in at most one note per reason. */
  end(): BlockedNote[] {
    clearTimeout(this.#timer);
    const tallies = [...this.#tallies.values()];
    this.#tallies.clear();
    const left = tallies.filter((tally) => tally.count > 0 && !this.#tell(tally));
    const byReason = Map.groupBy(left, ({ destination }) => destination.reason);
    return [...byReason].map(([reason, group]) => {
      const [first] = group.map(({ ts }) => ts).sort();
      const count = group.reduce((sum, tally) => sum + tally.count, 0);
      return buildNote(first ?? new Date().toISOString(), { reason, count });
    });
  }

  #tallyOf(destination: Tally['destination']): Tally {
    const { domain, ip, port, reason } = destination;
    const isKnown = this.#tallies.get(keyOf(destination));
    if (isKnown !== undefined) return isKnown;
    const hasDestination = domain !== undefined || ip !== undefined || port !== undefined;
    if (hasDestination && this.#tallies.size >= MAX_DESTINATIONS) return this.#tallyOf({ reason });
    const tally: Tally = { destination, count: 0, ts: '', quietUntilMs: 0 };
    this.#tallies.set(keyOf(destination), tally);
    return tally;
  }

  #onTimer(): void {
    this.#timer = undefined;
    const now = performance.now();
    for (const [key, tally] of this.#tallies) {
      if (tally.quietUntilMs > now) continue;
      if (tally.count > 0) this.#tell(tally);
      else this.#tallies.delete(key);
    }
    if (this.#tallies.size === 0) return;
    const next = Math.min(...[...this.#tallies.values()].map(({ quietUntilMs }) => quietUntilMs));
    this.#timer = setTimeout(() => this.#onTimer(), Math.max(next - now, this.#intervalMs / 10)).unref();
  }

  /** Offers a note; returns whether the outbox accepted it. */
  #tell(tally: Tally): boolean {
    const isTaken = this.#options.offer(buildNote(tally.ts, { ...tally.destination, count: tally.count }));
    tally.quietUntilMs = performance.now() + this.#intervalMs;
    if (isTaken) tally.count = 0;
    return isTaken;
  }
}

function buildNote(ts: string, data: BlockedData): BlockedNote {
  return { event: 'network.blocked', ts, data };
}

function keyOf({ domain, ip, port, reason }: Tally['destination']): string {
  return `${domain ?? ''} ${ip ?? ''} ${port ?? ''} ${reason}`;
}
