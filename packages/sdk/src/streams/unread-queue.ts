/**
 * A bounded queue of received items that are not read yet. If the socket can be paused, the queue pauses it, and the
 * sender waits. A standard WebSocket cannot be paused, so its connection is closed at the limit. If a caller waits for
 * the end and none reads, the queue drops its items, and all later ones, once they exceed the limit.
 *
 *   push ─► unread > pauseAt ─► pause ── read below half, or time passes (pauseAt grows) ──► resume
 *       └─► unread > limit, no pause ──► a caller only waits ? drop : overflow
 */
export const UNREAD_LIMIT_BYTES = 64 * 2 ** 20;
const PAUSE_AT_BYTES = 2 ** 20;
/**
 * A paused socket does not receive the service's pings either. They come every 20 s and may be queued behind data in
 * the buffers of both kernels. So from time to time the queue accepts this many more bytes, up to the limit.
 */
const PAUSE_STEP_BYTES = 8 * 2 ** 20;
const PAUSE_STEP_MS = 10_000;
/** Memory of an entry in addition to its message: a million entries of one byte each take more than a megabyte. */
const ENTRY_BYTES = 128;

/** The calls by which the queue controls its socket. */
export interface UnreadGate {
  /** Pauses the socket. Undefined if the socket cannot be paused. */
  pause: (() => void) | undefined;
  resume: () => void;
  /** Called once when the unread items exceed the limit. */
  onOverflow: () => void;
}

interface Entry<Item> {
  item: Item;
  sizeBytes: number;
  next?: Entry<Item>;
}

/** The queue described at the top of this file. */
export class UnreadQueue<Item> {
  readonly #gate: UnreadGate;
  #first: Entry<Item> | undefined;
  #last: Entry<Item> | undefined;
  #unreadBytes = 0;
  #pauseAtBytes = PAUSE_AT_BYTES;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #readers = 0;
  #isAwaited = false;
  #hasLetGo = false;
  #hasEnded = false;
  #wake: (() => void) | undefined;

  constructor(gate: UnreadGate) {
    this.#gate = gate;
  }

  /** True if items were dropped because no caller read them. */
  get hasLetGo(): boolean {
    return this.#hasLetGo;
  }

  /** Appends an item. `messageBytes` is the size of its message. */
  push(item: Item, messageBytes: number): void {
    if (this.#hasEnded || this.#hasLetGo) return;
    const entry = { item, sizeBytes: messageBytes + ENTRY_BYTES };
    if (this.#last === undefined) this.#first = entry;
    else this.#last.next = entry;
    this.#last = entry;
    this.#unreadBytes += entry.sizeBytes;
    this.#wake?.();
    this.#limit();
  }

  /** Waits for the next item. Resolves with undefined at the end. Throws `TypeError` for a second reader. */
  async take(): Promise<Item | undefined> {
    if (this.#wake !== undefined) throw new TypeError('another loop is already reading this stream');
    while (this.#first === undefined && !this.#hasEnded) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
      this.#wake = undefined;
    }
    return this.#shift();
  }

  /** Marks the end of the stream. Queued items can still be read unless `drop` is true. */
  end({ drop }: { drop: boolean }): void {
    this.#hasEnded = true;
    if (drop) this.#clear();
    this.#resume();
    this.#wake?.();
  }

  /** Registers a reader. The returned function unregisters it. */
  beginReading(): () => void {
    this.#readers += 1;
    return () => {
      this.#readers -= 1;
      this.#limit();
    };
  }

  /** Registers a caller that waits for the end and perhaps reads nothing. */
  expectEnd(): void {
    this.#isAwaited = true;
    this.#limit();
  }

  #shift(): Item | undefined {
    const entry = this.#first;
    if (entry === undefined) return undefined;
    this.#first = entry.next;
    if (entry.next === undefined) this.#last = undefined;
    this.#unreadBytes -= entry.sizeBytes;
    if (this.#unreadBytes < PAUSE_AT_BYTES / 2) this.#resume();
    return entry.item;
  }

  #limit(): void {
    if (this.#hasEnded) return;
    const isOver = this.#unreadBytes > UNREAD_LIMIT_BYTES;
    if (this.#isAwaited && this.#readers === 0) {
      this.#resume();
      if (isOver) this.#letGo();
    } else if (this.#gate.pause === undefined) {
      if (isOver) this.#gate.onOverflow();
    } else if (this.#unreadBytes > 2 * UNREAD_LIMIT_BYTES) {
      // The socket offers a pause but ignores it.
      this.#gate.onOverflow();
    } else if (this.#unreadBytes > this.#pauseAtBytes) this.#pause(this.#gate.pause);
  }

  #pause(pause: () => void): void {
    if (this.#timer !== undefined) return;
    pause();
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#pauseAtBytes = Math.min(this.#unreadBytes + PAUSE_STEP_BYTES, UNREAD_LIMIT_BYTES);
      if (this.#unreadBytes > this.#pauseAtBytes) this.#pause(pause);
      else this.#gate.resume();
    }, PAUSE_STEP_MS);
  }

  #resume(): void {
    this.#pauseAtBytes = PAUSE_AT_BYTES;
    if (this.#timer === undefined) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#gate.resume();
  }

  #letGo(): void {
    this.#hasLetGo = true;
    this.#clear();
  }

  #clear(): void {
    this.#first = undefined;
    this.#last = undefined;
    this.#unreadBytes = 0;
  }
}
