/**
 * What has come of a stream and is not read yet, bounded. A socket that can be paused is: its sender then waits. A
 * standard WebSocket cannot, and is given up at the limit. If nobody reads while somebody waits for the end, what is over
 * the limit is let go.
 *
 *   push ─► unread > pauseAt ─► pause ── read below half, or time passes (pauseAt grows) ──► resume
 *       └─► unread > limit, no pause ──► somebody only waits ? let go : overflow
 */
export const UNREAD_LIMIT_BYTES = 64 * 2 ** 20;
const PAUSE_AT_BYTES = 2 ** 20;
/**
 * A paused socket does not see the service's pings either, which come every 20 s and may lie behind what the buffers of
 * both kernels hold. So every now and then this much more is taken in, up to the limit.
 */
const PAUSE_STEP_BYTES = 8 * 2 ** 20;
const PAUSE_STEP_MS = 10_000;
/** What an entry takes beyond its message: a million of one byte each is not a megabyte. */
const ENTRY_BYTES = 128;

/** The other side of the queue. */
export interface UnreadGate {
  /** Undefined when the socket cannot. */
  pause: (() => void) | undefined;
  resume: () => void;
  /** Called once, when more is unread than may be. */
  onOverflow: () => void;
}

interface Entry<Item> {
  item: Item;
  sizeBytes: number;
  next?: Entry<Item>;
}

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

  /** Whether something was let go because nobody read. */
  get hasLetGo(): boolean {
    return this.#hasLetGo;
  }

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

  /** Undefined at the end. Of one reader at a time. */
  async take(): Promise<Item | undefined> {
    if (this.#wake !== undefined) throw new TypeError('somebody else is reading this already');
    while (this.#first === undefined && !this.#hasEnded) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
      this.#wake = undefined;
    }
    return this.#shift();
  }

  /** No more will come. What is there can still be read, unless it is dropped. */
  end({ drop }: { drop: boolean }): void {
    this.#hasEnded = true;
    if (drop) this.#clear();
    this.#resume();
    this.#wake?.();
  }

  /** Says that somebody reads, until the function that it gives is called. */
  beginReading(): () => void {
    this.#readers += 1;
    return () => {
      this.#readers -= 1;
      this.#limit();
    };
  }

  /** Says that somebody waits for the end, and perhaps reads nothing. */
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
      // It says that it can be paused, and was not.
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
