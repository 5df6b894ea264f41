/** A piece of the output of a command. */
export interface OutputChunk {
  /** Stream to which the command wrote. */
  type: 'stdout' | 'stderr';
  /** Text, cut between characters. */
  data: string;
}

/** A piece of the output of a command, as the bytes that it wrote. */
export interface OutputBytes {
  /** Stream to which the command wrote. */
  type: 'stdout' | 'stderr';
  /** Bytes, cut anywhere. */
  data: Uint8Array<ArrayBuffer>;
}

/**
 * Callbacks for the output of a command, called with its pieces in order. If a callback returns a promise, the client
 * waits for it, and the command waits in turn.
 */
export interface OutputListeners {
  /** Called with each piece of standard output. */
  onStdout?: ((data: string) => unknown) | undefined;
  /** Called with each piece of standard error. */
  onStderr?: ((data: string) => unknown) | undefined;
}

/** Limit for each of the two streams in characters. It is the service's limit for a buffered command. */
const MAX_COLLECTED = 16 * 2 ** 20;

/** Collects the output of a command up to a limit. */
export class CollectedOutput {
  readonly #texts = { stdout: '', stderr: '' };
  #isTruncated = false;

  add({ type, data }: OutputChunk): void {
    const room = MAX_COLLECTED - this.#texts[type].length;
    this.#texts[type] += data.slice(0, room);
    this.#isTruncated ||= data.length > room;
  }

  /** The collected output. `truncated` is true if output beyond the limit was dropped. */
  get all(): { stdout: string; stderr: string; truncated: boolean } {
    return { ...this.#texts, truncated: this.#isTruncated };
  }
}

/** Calls the listener for a piece of output, if there is one, and waits for its promise. */
export async function tellListener(listeners: OutputListeners, { type, data }: OutputChunk): Promise<void> {
  await (type === 'stdout' ? listeners.onStdout : listeners.onStderr)?.(data);
}
