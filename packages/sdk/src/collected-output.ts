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
  stdout = '';
  stderr = '';
  /** Output beyond the limit was dropped. */
  truncated = false;

  add({ type, data }: OutputChunk): void {
    const room = MAX_COLLECTED - this[type].length;
    this[type] += data.slice(0, room);
    this.truncated ||= data.length > room;
  }
}

export async function tellListener(listeners: OutputListeners, { type, data }: OutputChunk): Promise<void> {
  await (type === 'stdout' ? listeners.onStdout : listeners.onStderr)?.(data);
}
