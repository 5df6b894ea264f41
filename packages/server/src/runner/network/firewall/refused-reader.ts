/**
 * Reads the counts of guest packets that the kernel dropped, and reports the new ones. While nothing is dropped it
 * reads only one counter.
 */
import type { Logger } from 'pino';
import {
  parseRefusedKind,
  REFUSED_COUNTER,
  REFUSED_SETS,
  type RefusedKind,
  type RefusedSet,
} from './refused-packets.ts';
import type { HostControl, SetElement } from '../kernel/host-control.ts';

const INTERVAL_MS = 1000;

export interface RefusedReaderOptions {
  table: string;
  hostControl: Pick<HostControl, 'readSet' | 'readCounter'>;
  onRefused: (kind: RefusedKind, count: number) => void;
  log: Logger;
}

type Seen = Pick<SetElement, 'packets' | 'remainingMs'>;

export class RefusedReader implements AsyncDisposable {
  readonly #options: RefusedReaderOptions;
  readonly #timer: NodeJS.Timeout;
  #seen = new Map<string, Seen>();
  #total: number | undefined;
  #reading: Promise<void> | undefined;

  constructor(options: RefusedReaderOptions) {
    this.#options = options;
    this.#timer = setInterval(() => void this.#readQuietly(), INTERVAL_MS);
    this.#timer.unref();
  }

  /** Settles when all packets dropped before the call are reported. */
  async read(): Promise<void> {
    await this.#reading;
    this.#reading ??= this.#readAll().finally(() => {
      this.#reading = undefined;
    });
    await this.#reading;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.#reading?.catch(() => undefined);
  }

  async #readQuietly(): Promise<void> {
    if (this.#reading !== undefined) return;
    try {
      await this.read();
    } catch (error) {
      this.#options.log.warn({ err: error }, 'the counts of packets that the kernel refused cannot be read');
    }
  }

  async #readAll(): Promise<void> {
    const { table, hostControl } = this.#options;
    const total = await hostControl.readCounter(table, REFUSED_COUNTER);
    // Without a table there is nothing to read; a new table starts from zero.
    if (total === undefined || total === this.#total) return;
    this.#total = total;
    const seen = new Map<string, Seen>();
    for (const set of REFUSED_SETS)
      for (const element of (await hostControl.readSet(table, set.name)) ?? [])
        this.#compare(set, element, seen);
    this.#seen = seen;
  }

  #compare(set: RefusedSet, element: SetElement, seen: Map<string, Seen>): void {
    const id = set.name + element.key.toString('latin1');
    const fresh = countNew(this.#seen.get(id), element);
    seen.set(id, element);
    const kind = fresh > 0 ? parseRefusedKind(set, element) : undefined;
    if (kind !== undefined) this.#options.onRefused(kind, fresh);
  }
}

/** Returns the new packets of an element. One with more time left than before is a new element, counted from zero. */
export function countNew(before: Seen | undefined, now: Seen): number {
  const isSame =
    before !== undefined && now.remainingMs <= before.remainingMs && now.packets >= before.packets;
  return isSame ? now.packets - before.packets : now.packets;
}
