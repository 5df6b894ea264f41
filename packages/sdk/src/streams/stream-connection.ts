/**
 * One WebSocket of a sandbox. Received items are queued for a reader, sent messages wait for room, and the connection
 * ends with one reason.
 *
 *   ticket ─► connect ─► open ─┬─ final frame ─────────────► final resolves; queued items can be read, then it is done
 *                              ├─ error frame, close ──────► final rejects; queued items can be read, then it throws
 *                              └─ abort, silence, close() ─► final rejects; the queue is dropped
 */
import {
  buildCloseError,
  buildErrorEventError,
  buildMessageError,
  buildSlowError,
  buildStreamError,
} from './connection-errors.ts';
import type { Deadline } from '../transport/deadline.ts';
import { CoppiceError, type ErrorCode } from '../transport/errors.ts';
import type { FrameSource, StreamFrame } from './stream-frame.ts';
import { UnreadQueue } from './unread-queue.ts';
import type { WebSocketLike, WebSocketLikeEvent } from './web-socket.ts';

/** Largest message that the service accepts. It closes the connection with 1009 on a larger one. */
const MAX_MESSAGE_BYTES = 2 ** 20;
/** Bytes that may wait in the socket. It is polled, because the standard has no event for when they become fewer. */
const MAX_BUFFERED_BYTES = 2 ** 20;
const BUFFER_POLL_MS = 10;
/** Time to wait for the other side's answer to a close. */
const CLOSE_DEADLINE_MS = 3000;
const NORMAL_CLOSE = 1000;

/** Message format and time limits of a connection. */
export interface StreamProtocol<Item, Final> {
  /**
   * Parses a message. Returns undefined for a message to ignore. Throws the error of an error frame, or an error for an
   * invalid message.
   */
  parse: (
    message: string | Uint8Array<ArrayBuffer>,
    source: FrameSource,
  ) => StreamFrame<Item, Final> | undefined;
  /** Milliseconds without a message after which the connection counts as dead. Default: no limit. */
  silenceMs?: number | undefined;
  /** Milliseconds without a message or a ping after which it counts as dead, once the socket has shown a ping. */
  pingSilenceMs: number;
  /** Milliseconds after which sending fails if the service accepts no data. */
  stallMs: number;
}

/** Name, deadline and redaction of a connection. */
export interface ConnectionSource {
  /** Method and path, for messages. */
  label: string;
  /** Deadline of the whole connection. The connection ends it. */
  deadline: Deadline;
  /** Removes the ticket from a text, so that no log includes it. */
  redact: (text: string) => string;
}

/** One WebSocket of a sandbox with a queue of received items. See the comment at the top of this file. */
export class StreamConnection<Item, Final> {
  readonly #socket: WebSocketLike;
  readonly #protocol: StreamProtocol<Item, Final>;
  readonly #source: ConnectionSource;
  readonly #unread: UnreadQueue<Item>;
  #silenceMs: number | undefined;
  #isOpen = false;
  #isPaused = false;
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
    this.#silenceMs = protocol.silenceMs;
    this.#unread = new UnreadQueue({
      pause: socket.pause === undefined || socket.resume === undefined ? undefined : () => this.#pause(),
      resume: () => this.#resume(),
      onOverflow: () => this.#fail(buildSlowError(this.label), { drop: false }),
    });
    // A caller that only reads learns of a failure from its loop. Without this handler, Node would report the rejection
    // as unhandled.
    this.#final.catch(() => undefined);
    this.#listen();
  }

  /** Method and path, for messages. */
  get label(): string {
    return this.#source.label;
  }

  /** True after the final frame, a failure or `close()`. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Resolves when messages can be sent. Rejects when the connection fails first. */
  async opened(): Promise<void> {
    await Promise.race([this.#opened, this.#final]);
  }

  /**
   * Waits for the result in the final frame. It needs no reader: unread items are dropped once they exceed the limit.
   */
  final(): Promise<Final> {
    this.#unread.expectEnd();
    return this.#final;
  }

  /**
   * Yields the received items and returns the result in the final frame. There may be one reader at a time; the next
   * reader continues where the last one stopped. Throws code `reader_too_slow` when items were dropped.
   */
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

  /** Sends a message after the earlier ones, when there is room. Throws `TypeError` for a message over 1 MiB. */
  async send(data: string | Uint8Array<ArrayBuffer>): Promise<void> {
    requireMessageSize(data);
    const turn = this.#sendAfter(this.#sending, data);
    this.#sending = turn.catch(() => undefined);
    await turn;
  }

  /** Sends a small message at once. Throws the reason of the end, or code `closed`, once the connection has ended. */
  sendNow(data: string | Uint8Array<ArrayBuffer>): void {
    if (this.#hasEnded) throw this.#failure?.error ?? buildStreamError(this.label, 'closed', 'it has ended');
    this.#socket.send(data);
  }

  /** Closes the connection. Pending waits and reads reject with an error of this code. */
  async close(code: ErrorCode): Promise<void> {
    this.#fail(buildStreamError(this.label, code, 'this client closed the connection'), { drop: true });
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
    this.#socket.on?.('ping', () => {
      this.#silenceMs = this.#protocol.pingSilenceMs;
      this.#restartSilence();
    });
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

  /** Ends the connection with an error. Has no effect once it has ended. */
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
    this.#isPaused = true;
    this.#source.deadline.hold();
    this.#socket.pause?.();
  }

  #resume(): void {
    this.#isPaused = false;
    this.#restartSilence();
    this.#socket.resume?.();
  }

  #restartSilence(): void {
    const { deadline } = this.#source;
    // A socket that is paused may still emit what it has received already.
    if (this.#isPaused) return;
    if (this.#silenceMs === undefined) deadline.hold();
    else deadline.restart(this.#silenceMs);
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
        throw buildStreamError(this.label, 'timeout', `the service accepted no input for ${seconds} s`);
      }
      await this.#source.deadline.sleep(BUFFER_POLL_MS);
    }
  }
}

/**
 * Throws `TypeError` for a message that is too large, because the service would close the connection and its command.
 */
function requireMessageSize(data: string | Uint8Array): void {
  // A UTF-16 code unit has at most three bytes of UTF-8.
  if (data.length * 3 <= MAX_MESSAGE_BYTES) return;
  const sizeBytes = typeof data === 'string' ? new TextEncoder().encode(data).length : data.length;
  if (sizeBytes <= MAX_MESSAGE_BYTES) return;
  throw new TypeError(
    `a message of ${sizeBytes} bytes exceeds the service's limit of ${MAX_MESSAGE_BYTES} bytes; upload a file instead`,
  );
}
