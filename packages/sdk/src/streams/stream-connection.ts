/**
 * One WebSocket of a sandbox: what comes is queued for a reader, what goes waits for room, and the end has one reason.
 *
 *   ticket ─► connect ─► open ─┬─ final frame ─────────────► final resolves, what is queued can be read, then done
 *                              ├─ error frame, close ──────► final rejects, what is queued can be read, then throws
 *                              └─ abort, silence, close() ─► final rejects, the queue is dropped
 */
import {
  buildCloseError,
  buildErrorEventError,
  buildMessageError,
  buildSlowError,
  buildStreamError,
} from './connection-errors.ts';
import type { Deadline } from '../transport/deadline.ts';
import { CoppiceError } from '../transport/errors.ts';
import type { FrameSource, StreamFrame } from './stream-frame.ts';
import { UnreadQueue } from './unread-queue.ts';
import type { WebSocketLike, WebSocketLikeEvent } from './web-socket.ts';

/** Of one message, in the service: it closes with 1009 on a larger one. */
const MAX_MESSAGE_BYTES = 2 ** 20;
/** What may wait in the socket; the standard has no event for when it is less. */
const MAX_BUFFERED_BYTES = 2 ** 20;
const BUFFER_POLL_MS = 10;
/** For the other side's answer to a close. */
const CLOSE_DEADLINE_MS = 3000;
const NORMAL_CLOSE = 1000;

export interface StreamProtocol<Item, Final> {
  /** Undefined for what is to be passed over; throws what a message says or why it cannot be used. */
  parse: (
    message: string | Uint8Array<ArrayBuffer>,
    source: FrameSource,
  ) => StreamFrame<Item, Final> | undefined;
  /** How long nothing may come before the connection counts as dead. Default: a quiet one is none. */
  silenceMs?: number | undefined;
  /** How long what is sent may find no room. */
  stallMs: number;
}

export interface ConnectionSource {
  label: string;
  /** Of the whole connection; ended by it. */
  deadline: Deadline;
  /** Takes out of a text what nobody should read in a log. */
  redact: (text: string) => string;
}

export class StreamConnection<Item, Final> {
  readonly #socket: WebSocketLike;
  readonly #protocol: StreamProtocol<Item, Final>;
  readonly #source: ConnectionSource;
  readonly #unread: UnreadQueue<Item>;
  #isOpen = false;
  #failure: { error: unknown } | undefined;
  #hasEnded = false;
  #sending: Promise<void> = Promise.resolve();
  #noteOpen = (): void => undefined;
  #resolveFinal!: (final: Final) => void;
  #rejectFinal!: (reason: unknown) => void;
  #noteClosed = (): void => undefined;
  readonly #final = new Promise<Final>((resolve, reject) => {
    this.#resolveFinal = resolve;
    this.#rejectFinal = reject;
  });
  readonly #opened = new Promise<void>((resolve) => (this.#noteOpen = resolve));
  readonly #closed = new Promise<void>((resolve) => (this.#noteClosed = resolve));

  constructor(socket: WebSocketLike, protocol: StreamProtocol<Item, Final>, source: ConnectionSource) {
    this.#socket = socket;
    this.#protocol = protocol;
    this.#source = source;
    this.#unread = new UnreadQueue({
      pause: socket.pause === undefined || socket.resume === undefined ? undefined : () => this.#pause(),
      resume: () => this.#resume(),
      onOverflow: () => this.#fail(buildSlowError(this.label), { drop: false }),
    });
    // Who only reads learns of a failure there; it is not unhandled because nobody waits here.
    this.#final.catch(() => undefined);
    this.#listen();
  }

  get label(): string {
    return this.#source.label;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Resolves when messages can be sent. */
  async opened(): Promise<void> {
    await Promise.race([this.#opened, this.#final]);
  }

  /** What the final frame says. To wait for it does not need a reader. */
  final(): Promise<Final> {
    this.#unread.expectEnd();
    return this.#final;
  }

  /** What comes; ends with the final frame. One reader at a time; the next goes on where the last has left off. */
  async *items(): AsyncGenerator<Item, Final> {
    const endReading = this.#unread.beginReading();
    try {
      if (this.#unread.hasLetGo) throw buildSlowError(this.label);
      for (;;) {
        const item = await this.#unread.take();
        if (item === undefined) return await this.#final;
        yield item;
      }
    } finally {
      endReading();
    }
  }

  /** Sends messages one after the other, when there is room. */
  async send(data: string | Uint8Array<ArrayBuffer>): Promise<void> {
    requireMessageSize(data);
    const turn = this.#sendAfter(this.#sending, data);
    this.#sending = turn.catch(() => undefined);
    await turn;
  }

  /** Sends a small message at once. */
  sendNow(data: string | Uint8Array<ArrayBuffer>): void {
    if (this.#hasEnded) throw this.#failure?.error ?? buildStreamError(this.label, 'closed', 'it has ended');
    this.#socket.send(data);
  }

  /** Leaves. `code` is that of the error for whoever still waits. */
  async close(code: string): Promise<void> {
    this.#fail(buildStreamError(this.label, code, 'it was closed by this client'), { drop: true });
    let timer: ReturnType<typeof setTimeout> | undefined;
    const expired = new Promise<void>((resolve) => {
      timer = setTimeout(() => {
        this.#socket.terminate?.();
        resolve();
      }, CLOSE_DEADLINE_MS);
    });
    await Promise.race([this.#closed, expired]);
    clearTimeout(timer);
  }

  #listen(): void {
    const { signal } = this.#source.deadline;
    const onAbort = (): void => this.#fail(signal.reason, { drop: true });
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) onAbort();
    this.#socket.binaryType = 'arraybuffer';
    this.#socket.addEventListener('open', () => {
      this.#isOpen = true;
      this.#restartSilence();
      this.#noteOpen();
    });
    this.#socket.addEventListener('message', (event) => this.#receive(event));
    this.#socket.addEventListener('error', (event) =>
      this.#fail(buildErrorEventError(event, { ...this.#source, isOpen: this.#isOpen }), { drop: false }),
    );
    this.#socket.addEventListener('close', (event) => {
      this.#fail(buildCloseError(this.label, event), { drop: false });
      this.#noteClosed();
    });
  }

  #receive({ data }: WebSocketLikeEvent): void {
    if (this.#hasEnded) return;
    this.#restartSilence();
    try {
      const message = typeof data === 'string' ? data : new Uint8Array(data as ArrayBuffer);
      const frame = this.#protocol.parse(message, { label: this.label, status: 101 });
      if (frame !== undefined && 'item' in frame) this.#unread.push(frame.item, message.length);
      else if (frame !== undefined) this.#finish(frame.final);
    } catch (error) {
      const failure = error instanceof CoppiceError ? error : buildMessageError(this.label, error);
      this.#fail(failure, { drop: false });
    }
  }

  #finish(final: Final): void {
    this.#hasEnded = true;
    this.#resolveFinal(final);
    this.#leave({ drop: false });
  }

  /** Without effect once there is an end. */
  #fail(error: unknown, { drop }: { drop: boolean }): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#failure = { error };
    this.#rejectFinal(error);
    this.#leave({ drop });
  }

  #leave({ drop }: { drop: boolean }): void {
    this.#unread.end({ drop });
    this.#source.deadline.end();
    this.#socket.close(NORMAL_CLOSE);
  }

  #pause(): void {
    this.#source.deadline.hold();
    this.#socket.pause?.();
  }

  #resume(): void {
    this.#restartSilence();
    this.#socket.resume?.();
  }

  #restartSilence(): void {
    const { deadline } = this.#source;
    if (this.#protocol.silenceMs === undefined) deadline.hold();
    else deadline.restart(this.#protocol.silenceMs);
  }

  async #sendAfter(before: Promise<void>, data: string | Uint8Array<ArrayBuffer>): Promise<void> {
    await before;
    await this.#waitForRoom();
    this.sendNow(data);
  }

  async #waitForRoom(): Promise<void> {
    let leastBytes = Infinity;
    let stalledAtMs = Infinity;
    while (!this.#hasEnded && this.#socket.bufferedAmount > MAX_BUFFERED_BYTES) {
      if (this.#socket.bufferedAmount < leastBytes) {
        leastBytes = this.#socket.bufferedAmount;
        stalledAtMs = Date.now() + this.#protocol.stallMs;
      }
      if (Date.now() > stalledAtMs) {
        const seconds = Math.round(this.#protocol.stallMs / 1000);
        throw buildStreamError(this.label, 'timeout', `the service has taken no input for ${seconds} s`);
      }
      await this.#source.deadline.sleep(BUFFER_POLL_MS);
    }
  }
}

/** Here, because the service would close the connection and end what runs on it. */
function requireMessageSize(data: string | Uint8Array): void {
  // At most three bytes of UTF-8 for a UTF-16 unit.
  if (data.length * 3 <= MAX_MESSAGE_BYTES) return;
  const sizeBytes = typeof data === 'string' ? new TextEncoder().encode(data).length : data.length;
  if (sizeBytes <= MAX_MESSAGE_BYTES) return;
  throw new TypeError(
    `a message of ${sizeBytes} bytes is over the ${MAX_MESSAGE_BYTES} that the service takes; upload a file, and use that`,
  );
}
