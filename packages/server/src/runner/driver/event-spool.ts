/**
 * What control has to learn even if it was away: one synced file for each event, deleted when acknowledged.
 * The newest file stays, so that sequence numbers never start again.
 */
import { EventEmitter } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { writeDurably } from '../../lib/durable-file.ts';
import { RunnerEvent, type VmEnd } from '../../lib/runner-protocol.ts';

const NAME = /^(\d{12})\.json$/u;

function fileName(seq: number): string {
  return `${String(seq).padStart(12, '0')}.json`;
}

/** Emits `event` for each new one. */
export class EventSpool extends EventEmitter<{ event: [RunnerEvent] }> {
  readonly #directory: string;
  readonly #events: RunnerEvent[] = [];
  #lastSeq = 0;
  #ackedSeq = 0;

  private constructor(directory: string) {
    super();
    this.setMaxListeners(0);
    this.#directory = directory;
  }

  static open(directory: string): EventSpool {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const spool = new EventSpool(directory);
    for (const name of readdirSync(directory).toSorted()) {
      if (!NAME.test(name)) continue;
      const event = RunnerEvent.parse(JSON.parse(readFileSync(join(directory, name), 'utf8')));
      spool.#events.push(event);
      spool.#lastSeq = event.seq;
    }
    return spool;
  }

  /** Durable when it returns. */
  add(end: VmEnd): RunnerEvent {
    const event: RunnerEvent = { seq: this.#lastSeq + 1, type: 'vm_ended', end };
    writeDurably(join(this.#directory, fileName(event.seq)), JSON.stringify(event));
    this.#lastSeq = event.seq;
    this.#events.push(event);
    this.emit('event', event);
    return event;
  }

  /** Events after `seq`, oldest first. */
  after(seq: number): RunnerEvent[] {
    return this.#events.filter((event) => event.seq > seq);
  }

  findEnd(vmId: string): VmEnd | undefined {
    return this.#events.find((event) => event.end.id === vmId && event.seq > this.#ackedSeq)?.end;
  }

  acknowledge(seq: number): void {
    this.#ackedSeq = Math.max(this.#ackedSeq, Math.min(seq, this.#lastSeq));
    while (this.#events.length > 1 && (this.#events[0]?.seq ?? Infinity) <= this.#ackedSeq) {
      const [event] = this.#events.splice(0, 1);
      if (event !== undefined) unlinkSync(join(this.#directory, fileName(event.seq)));
    }
  }
}
