/**
 * Stores the events that control must receive even if it was away: ends of VMs, and notes of what they sent. Events
 * that arrive while the disk is busy go into the next file together. A file is synced before its events are announced,
 * and deleted when all of them are acknowledged. The newest file stays, so sequence numbers never restart while the
 * directory exists. A new directory is another generation. Every event names its generation, so control does not
 * mistake its first numbers for earlier ones.
 *
 *   add ──► waiting ──► one file, synced ──► sent to control ──► acknowledged
 *              ▲
 *   addNotes ──┴── full: held, until there is room, or the VM's end takes them along
 *
 * So all notes of a VM come before its end. `addNotes` resolves when the notes are durable: an action that must not
 * happen without its note waits for that, and is refused when the spool stays full.
 */
import { EventEmitter } from 'node:events';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { z } from 'zod';
import type { VmNote } from '../../lib/protocol/egress-messages.ts';
import { writeDurablyLater } from '../../lib/files/durable-file.ts';
import { RunnerEvent, type EventPlace, type VmEnd } from '../../lib/protocol/runner-protocol.ts';
import type { Ballast } from '../capacity/ballast.ts';

const NAME = /^(\d{12})\.json$/u;
/** Limit on the size of unacknowledged files. Above it notes are held; ends are always accepted. */
const MAX_BYTES = 64 << 20;
/** Limit on the events of one file, and so on the events in memory at once when control returns. */
const MAX_FILE_EVENTS = 1024;
/** A file of several events, or of one event, the format before notes. */
const SpoolFile = z.union([z.array(RunnerEvent).min(1), RunnerEvent.transform((event) => [event])]);

/** An event without a number. */
type NewEvent = RunnerEvent extends infer E
  ? E extends RunnerEvent
    ? Omit<E, keyof EventPlace>
    : never
  : never;

interface Waiting {
  event: NewEvent;
  settled: PromiseWithResolvers<void>;
}

interface StoredFile {
  path: string;
  lastSeq: number;
  bytes: number;
  ends: VmEnd[];
}

export interface EventSpoolOptions {
  maxBytes?: number;
  /** Reserved disk space, used to write ends to a full disk. */
  ballast?: Pick<Ballast, 'use'>;
  /** Whether an earlier process had a spool here. */
  isExpected?: boolean;
  log: Logger;
}

/** Emits `event` when there are new events to read. */
export class EventSpool extends EventEmitter<{ event: [] }> {
  readonly #directory: string;
  readonly #maxBytes: number;
  readonly #ballast: EventSpoolOptions['ballast'];
  readonly #log: Logger;
  #generation: string = randomUUID();
  #files: StoredFile[] = [];
  #waiting: Waiting[] = [];
  /** Notes that wait for room. */
  #held: Waiting[] = [];
  /** VMs whose end is being written: further notes of them are dropped. */
  readonly #ending = new Set<string>();
  #writing: Promise<void> | undefined;
  #lastSeq = 0;
  #ackedSeq = 0;

  private constructor(directory: string, { maxBytes = MAX_BYTES, ballast, log }: EventSpoolOptions) {
    super();
    this.setMaxListeners(0);
    this.#directory = directory;
    this.#maxBytes = maxBytes;
    this.#ballast = ballast;
    this.#log = log;
  }

  static open(directory: string, options: EventSpoolOptions): EventSpool {
    const isMade = mkdirSync(directory, { recursive: true, mode: 0o700 }) !== undefined;
    if (isMade && options.isExpected === true)
      options.log.warn(
        { directory },
        'the event spool is gone: events that control had not acknowledged are lost',
      );
    const spool = new EventSpool(directory, options);
    for (const name of readdirSync(directory).toSorted()) {
      if (!NAME.test(name)) continue;
      const path = join(directory, name);
      const events = readEvents(path);
      spool.#generation = events.at(-1)?.generation ?? spool.#generation;
      spool.#keep(path, events, statSync(path).size);
    }
    return spool;
  }

  /** Adds the end of a VM, after its held notes. Resolves when it is durable. */
  async add(end: VmEnd): Promise<void> {
    this.#ending.add(end.id);
    const isOwn = ({ event }: Waiting): boolean => event.type === 'egress_note' && event.vm_id === end.id;
    this.#waiting.push(...this.#held.filter(isOwn));
    this.#held = this.#held.filter((waiting) => !isOwn(waiting));
    try {
      await this.#enqueue(this.#waiting, [{ type: 'vm_ended', end }]);
    } finally {
      this.#ending.delete(end.id);
    }
  }

  /** Adds notes. Resolves when they are durable, which may wait for room. Notes of VMs that have ended are dropped. */
  async addNotes(notes: readonly VmNote[]): Promise<void> {
    const events = notes
      .filter(({ vmId }) => !this.#ending.has(vmId) && this.findEnd(vmId) === undefined)
      .map(({ vmId: vm_id, note }): NewEvent => ({ type: 'egress_note', vm_id, note }));
    if (events.length > 0) await this.#enqueue(this.#isFull ? this.#held : this.#waiting, events);
  }

  /**
   * Returns some events after `place`, oldest first: at least one if any exist. A place of another generation counts as
   * before all events.
   */
  after(place: EventPlace | undefined): RunnerEvent[] {
    const seq = place?.generation === this.#generation ? place.seq : 0;
    for (;;) {
      const file = this.#files.find(({ lastSeq }) => lastSeq > seq);
      if (file === undefined) return [];
      if (existsSync(file.path)) return readEvents(file.path).filter((event) => event.seq > seq);
      this.#replaceLost();
    }
  }

  findEnd(vmId: string): VmEnd | undefined {
    for (const { ends, lastSeq } of this.#files) {
      const end = lastSeq > this.#ackedSeq ? ends.find(({ id }) => id === vmId) : undefined;
      if (end !== undefined) return end;
    }
    return undefined;
  }

  /** Acknowledges events up to a place. Does nothing for another generation, whose events are gone. */
  acknowledge({ generation, seq }: EventPlace): void {
    if (generation !== this.#generation) return;
    this.#ackedSeq = Math.max(this.#ackedSeq, Math.min(seq, this.#lastSeq));
    while (this.#files.length > 1 && (this.#files[0]?.lastSeq ?? Infinity) <= this.#ackedSeq) {
      const [file] = this.#files.splice(0, 1);
      if (file !== undefined) rmSync(file.path, { force: true });
    }
    this.#releaseHeld();
  }

  #releaseHeld(): void {
    if (this.#held.length === 0 || this.#isFull) return;
    this.#waiting.push(...this.#held);
    this.#held = [];
    this.#write();
  }

  get #isFull(): boolean {
    const kept = this.#files.filter(({ lastSeq }) => lastSeq > this.#ackedSeq);
    return kept.reduce((sum, { bytes }) => sum + bytes, 0) >= this.#maxBytes;
  }

  async #enqueue(queue: Waiting[], events: readonly NewEvent[]): Promise<void> {
    const added = events.map((event) => ({ event, settled: Promise.withResolvers<void>() }));
    const all = Promise.all(added.map(({ settled }) => settled.promise));
    queue.push(...added);
    this.#write();
    await all;
  }

  #write(): void {
    if (this.#writing !== undefined || this.#waiting.length === 0) return;
    const batch = this.#waiting.splice(0, MAX_FILE_EVENTS);
    this.#writing = this.#writeFile(batch).finally(() => {
      this.#writing = undefined;
      this.#write();
    });
  }

  /** Writes a batch. Never rejects: if the write fails, its events get no number and their callers get the error. */
  async #writeFile(batch: readonly Waiting[]): Promise<void> {
    const first = this.#lastSeq + 1;
    const generation = this.#generation;
    const events = batch.map(({ event }, at): RunnerEvent => ({ generation, seq: first + at, ...event }));
    const path = join(this.#directory, `${String(first).padStart(12, '0')}.json`);
    const text = JSON.stringify(events);
    const write = (): Promise<void> => writeDurablyLater(path, text);
    const ballast = events.some(({ type }) => type === 'vm_ended') ? this.#ballast : undefined;
    try {
      await (ballast === undefined ? write() : ballast.use(write));
    } catch (error) {
      if (this.#isRemade(error)) this.#waiting.unshift(...batch);
      else for (const { settled } of batch) settled.reject(error);
      return;
    }
    this.#keep(path, events, Buffer.byteLength(text));
    for (const { settled } of batch) settled.resolve();
    this.emit('event');
  }

  /** Recreates the directory if the error of a write shows that it was missing. Returns whether it did. */
  #isRemade(failure: unknown): boolean {
    if ((failure as NodeJS.ErrnoException).code !== 'ENOENT') return false;
    try {
      this.#replaceLost();
      return true;
    } catch (error) {
      this.#log.error({ err: error, directory: this.#directory }, 'could not recreate the event spool');
      return false;
    }
  }

  /**
   * Recovers after another program has removed files. Numbers and ends are in memory: numbers continue, and ends are
   * written again. Notes that control had not acknowledged are lost.
   */
  #replaceLost(): void {
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    const isThere = ({ path }: StoredFile): boolean => existsSync(path);
    const lost = this.#files.filter((file) => file.lastSeq > this.#ackedSeq && !isThere(file));
    this.#files = this.#files.filter(isThere);
    const ends = lost.flatMap((file) => file.ends);
    this.#log.warn(
      { directory: this.#directory, files: lost.length, ends: ends.length },
      'another program has removed files of the event spool: notes that control had not acknowledged are lost',
    );
    // If that also fails, control finds the VM missing.
    for (const end of ends) this.#enqueue(this.#waiting, [{ type: 'vm_ended', end }]).catch(() => undefined);
    this.#releaseHeld();
  }

  #keep(path: string, events: readonly RunnerEvent[], bytes: number): void {
    this.#lastSeq = events.at(-1)?.seq ?? this.#lastSeq;
    const ends = events.flatMap((event) => (event.type === 'vm_ended' ? [event.end] : []));
    this.#files.push({ path, lastSeq: this.#lastSeq, bytes, ends });
  }
}

function readEvents(path: string): RunnerEvent[] {
  return SpoolFile.parse(JSON.parse(readFileSync(path, 'utf8')));
}
