/** A piece of what a command writes: text, cut between characters. */
export interface OutputChunk {
  type: 'stdout' | 'stderr';
  data: string;
}

/** Called with each piece in order; a promise is waited for, and the command waits with it. */
export interface OutputListeners {
  onStdout?: ((data: string) => void | Promise<void>) | undefined;
  onStderr?: ((data: string) => void | Promise<void>) | undefined;
}

/** Of each of the two streams, in characters, as the service keeps of a buffered command. */
const MAX_COLLECTED = 16 * 2 ** 20;

/** What a command has written so far. */
export class CollectedOutput {
  readonly #texts = { stdout: '', stderr: '' };
  #isTruncated = false;

  add({ type, data }: OutputChunk): void {
    const room = MAX_COLLECTED - this.#texts[type].length;
    this.#texts[type] += data.slice(0, room);
    this.#isTruncated ||= data.length > room;
  }

  /** `truncated`: output beyond the limit was dropped. */
  get all(): { stdout: string; stderr: string; truncated: boolean } {
    return { ...this.#texts, truncated: this.#isTruncated };
  }
}

export async function tellListener(listeners: OutputListeners, { type, data }: OutputChunk): Promise<void> {
  await (type === 'stdout' ? listeners.onStdout : listeners.onStderr)?.(data);
}
