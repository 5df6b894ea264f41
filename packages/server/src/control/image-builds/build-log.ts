/** Writes the log of one build: output is collected for a moment, so that a chatty command does not cost a row for each line. */
import { StringDecoder } from 'node:string_decoder';
import { MAX_BUILD_LOG_BYTES } from '@coppice/contract';
import type { BuildStore, NewBuildEvent } from './build-store.ts';

const COLLECT_MS = 200;
const MAX_EVENT_BYTES = 64 << 10;
/** Of the output of a step, for the error when it fails. */
const TAIL_CHARACTERS = 2000;

export interface BuildLogParts {
  buildId: string;
  store: Pick<BuildStore, 'addEvent'>;
  /** Called after each event that is stored. */
  onEvent: () => void;
}

type Stream = 'stdout' | 'stderr';

export class BuildLog {
  readonly #parts: BuildLogParts;
  #seq = 0;
  #bytes = 0;
  #isCut = false;
  #step = 0;
  #stream: Stream = 'stdout';
  #waiting = '';
  #decoders = newDecoders();
  #tail = '';
  #timer: NodeJS.Timeout | undefined;
  /** Writes one after another. A failure is thrown by the next call. */
  #writing: Promise<void> = Promise.resolve();

  constructor(parts: BuildLogParts) {
    this.#parts = parts;
  }

  /** The end of what the current step has written. */
  get tail(): string {
    return this.#tail.trimEnd();
  }

  async step(step: number, text: string, { cached }: { cached: boolean }): Promise<void> {
    this.#flush();
    this.#step = step;
    this.#tail = '';
    this.#decoders = newDecoders();
    await this.#add({ type: 'step', step, text, cached });
  }

  async note(text: string): Promise<void> {
    this.#flush();
    await this.#add({ type: 'note', text });
  }

  /** Resolves when there is room for more. */
  async output(stream: Stream, data: Buffer): Promise<void> {
    const text = this.#decoders[stream].write(data);
    this.#tail = (this.#tail + text).slice(-TAIL_CHARACTERS);
    if (this.#isCut) return;
    this.#bytes += data.length;
    if (this.#bytes > MAX_BUILD_LOG_BYTES) {
      this.#isCut = true;
      await this.note(`the log has ${MAX_BUILD_LOG_BYTES} bytes of output; the rest is left out`);
      return;
    }
    if (stream !== this.#stream) this.#flush();
    this.#stream = stream;
    this.#waiting += text;
    if (this.#waiting.length >= MAX_EVENT_BYTES) {
      this.#flush();
      await this.#writing;
    } else this.#timer ??= setTimeout(() => this.#flush(), COLLECT_MS);
  }

  /** Writes what waits. */
  async close(): Promise<void> {
    this.#flush();
    await this.#writing;
  }

  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const data = this.#waiting;
    this.#waiting = '';
    if (data === '') return;
    void this.#add({ type: this.#stream, step: this.#step, data }).catch(() => undefined);
  }

  #add(event: NewBuildEvent): Promise<void> {
    this.#seq += 1;
    const seq = this.#seq;
    this.#writing = this.#writing
      .then(() => this.#parts.store.addEvent(this.#parts.buildId, seq, event))
      .then(() => this.#parts.onEvent());
    this.#writing.catch(() => undefined);
    return this.#writing;
  }
}

function newDecoders(): Record<Stream, StringDecoder> {
  return { stdout: new StringDecoder('utf8'), stderr: new StringDecoder('utf8') };
}
