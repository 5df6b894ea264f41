/**
 * Writes the log of one build. Output is collected for a moment, events wait in a short queue, and one statement writes as many
 * of them as are there. A caller that adds output waits while the queue is full, so a guest that writes faster than the database slows
 * down itself alone.
 */
import { StringDecoder } from 'node:string_decoder';
import { MAX_BUILD_LOG_BYTES } from '@coppice/contract';
import type { Logger } from 'pino';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import { withRetries } from '../../lib/waiting/retries.ts';
import type { BuildStore, NewBuildEvent } from './build-store.ts';

const COLLECT_MS = 200;
/** Of the data of one event. */
const MAX_DATA_CHARACTERS = 64 << 10;
const MAX_TEXT_CHARACTERS = 16 << 10;
/** The cost of an event besides its text: output of two streams in turn makes one for every few bytes. */
const EVENT_BYTES = 256;
const MAX_QUEUED_EVENTS = 64;
/** Of the output of a step, for the error when it fails. */
const TAIL_CHARACTERS = 2000;
/** Pauses between the attempts to write events. */
const RETRY_DELAYS_MS = [500, 2000, 8000];
const CLOSE_DEADLINE_MS = 10_000;

export interface BuildLogParts {
  buildId: string;
  store: Pick<BuildStore, 'addEvents'>;
  /** Called after events are stored. */
  onEvents: () => void;
  log: Logger;
  retryDelaysMs?: readonly number[];
  closeDeadlineMs?: number;
}

type Stream = 'stdout' | 'stderr';

export class BuildLog {
  readonly #parts: BuildLogParts;
  #seq = 0;
  /** Of the events of output, as stored. */
  #bytes = 0;
  #isCut = false;
  #step = 0;
  #stream: Stream = 'stdout';
  #waiting = '';
  #decoders = newDecoders();
  #tail = '';
  #timer: NodeJS.Timeout | undefined;
  #queue: { seq: number; event: NewBuildEvent }[] = [];
  #writing: Promise<void> | undefined;
  #isClosed = false;

  constructor(parts: BuildLogParts) {
    this.#parts = parts;
  }

  /** The end of what the current step has written. */
  get tail(): string {
    return this.#tail.trimEnd();
  }

  /** Resolves when there is room for more. */
  async step(step: number, text: string, { cached }: { cached: boolean }): Promise<void> {
    this.#collect();
    this.#step = step;
    this.#tail = '';
    this.#decoders = newDecoders();
    await this.#announce({ type: 'step', step, text: text.slice(0, MAX_TEXT_CHARACTERS), cached });
  }

  /** Resolves when there is room for more. */
  async note(text: string): Promise<void> {
    this.#collect();
    await this.#announce({ type: 'note', text: text.slice(0, MAX_TEXT_CHARACTERS) });
  }

  /** Resolves when there is room for more. */
  async output(stream: Stream, data: Buffer): Promise<void> {
    const text = this.#decoders[stream].write(data);
    this.#tail = (this.#tail + text).slice(-TAIL_CHARACTERS);
    if (this.#isCut) return;
    if (stream !== this.#stream) this.#collect();
    this.#stream = stream;
    this.#waiting += text;
    if (this.#waiting.length >= MAX_DATA_CHARACTERS || this.#queue.length >= MAX_QUEUED_EVENTS) this.#flush();
    else this.#timer ??= setTimeout(() => this.#flush(), COLLECT_MS);
    await this.#room();
  }

  /** Writes what waits, but does not wait for a database that does not answer. */
  async close(): Promise<void> {
    this.#flush();
    const written = this.#writing ?? Promise.resolve();
    const { buildId, log, closeDeadlineMs = CLOSE_DEADLINE_MS } = this.#parts;
    try {
      await withDeadline('writing the log of a build', closeDeadlineMs, written);
    } catch (error) {
      log.warn({ err: error, build: buildId }, 'the log of a build is not whole');
    } finally {
      this.#isClosed = true;
      this.#queue = [];
    }
  }

  /** Writes what waits. */
  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#collect();
    if (this.#queue.length > 0) this.#writing ??= this.#write().finally(() => (this.#writing = undefined));
  }

  /** Queues the output that waits. */
  #collect(): void {
    for (let rest = this.#waiting; rest !== '';) {
      const data = cut(rest);
      rest = rest.slice(data.length);
      this.#addOutput({ type: this.#stream, step: this.#step, data });
    }
    this.#waiting = '';
  }

  #addOutput(event: NewBuildEvent): void {
    if (this.#isCut) return;
    this.#bytes += EVENT_BYTES + Buffer.byteLength(JSON.stringify(event));
    this.#isCut = this.#bytes > MAX_BUILD_LOG_BYTES;
    if (!this.#isCut) this.#add(event);
    else
      this.#add({
        type: 'note',
        text: `the log has ${MAX_BUILD_LOG_BYTES} bytes of output, as stored; the rest is left out`,
      });
  }

  #add(event: NewBuildEvent): void {
    if (this.#isClosed) return;
    this.#seq += 1;
    this.#queue.push({ seq: this.#seq, event });
  }

  async #announce(event: NewBuildEvent): Promise<void> {
    this.#add(event);
    this.#flush();
    await this.#room();
  }

  async #room(): Promise<void> {
    if (this.#queue.length >= MAX_QUEUED_EVENTS) await this.#writing;
  }

  async #write(): Promise<void> {
    while (this.#queue.length > 0) {
      await this.#store(this.#queue.splice(0));
      this.#parts.onEvents();
    }
  }

  /** Events that cannot be stored are left out: a build does not fail because of its log. */
  async #store(events: { seq: number; event: NewBuildEvent }[]): Promise<void> {
    const { buildId, store, log, retryDelaysMs = RETRY_DELAYS_MS } = this.#parts;
    const of = { build: buildId, events: events.length };
    const noteFailure = (error: unknown): void => {
      if (this.#isClosed) throw error;
      log.warn({ err: error, ...of }, 'events of a build are not stored yet');
    };
    try {
      await withRetries(retryDelaysMs, () => store.addEvents(buildId, events), noteFailure);
    } catch (error) {
      log.warn({ err: error, ...of }, 'events of a build are left out of its log');
    }
  }
}

/** Returns the beginning of a text as the data of one event, with no half of a character at its end. */
function cut(text: string): string {
  if (text.length <= MAX_DATA_CHARACTERS) return text;
  const last = text.charCodeAt(MAX_DATA_CHARACTERS - 1);
  const isHalf = last >= 0xd8_00 && last <= 0xdb_ff;
  return text.slice(0, isHalf ? MAX_DATA_CHARACTERS - 1 : MAX_DATA_CHARACTERS);
}

function newDecoders(): Record<Stream, StringDecoder> {
  return { stdout: new StringDecoder('utf8'), stderr: new StringDecoder('utf8') };
}
