/** Destroys sandboxes, a few at a time, and keeps what has become of each. */
import { signal } from '@preact/signals';

type PruneState = { state: 'waiting' | 'busy' | 'done' } | { state: 'failed'; reason: string };

const AT_ONCE = 4;
const WAITING: PruneState = { state: 'waiting' };

export class PruneRun {
  readonly #states = signal<ReadonlyMap<string, PruneState>>(new Map());
  readonly #destroy: (id: string) => Promise<unknown>;
  readonly #explain: (error: unknown) => string;

  constructor(destroy: (id: string) => Promise<unknown>, explain: (error: unknown) => string) {
    this.#destroy = destroy;
    this.#explain = explain;
  }

  /** Components that call it are drawn again when a state changes. */
  stateOf(id: string): PruneState {
    return this.#states.value.get(id) ?? WAITING;
  }

  /** Destroys those that an earlier call has not. Rejects at the end if some could not be destroyed. */
  async run(ids: readonly string[]): Promise<void> {
    const left = ids.filter((id) => this.stateOf(id).state !== 'done').toReversed();
    for (const id of left) this.#set(id, WAITING);
    const work = async (): Promise<void> => {
      for (let id = left.pop(); id !== undefined; id = left.pop()) await this.#end(id);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    const failed = ids.filter((id) => this.stateOf(id).state === 'failed').length;
    if (failed > 0) throw new Error(`${failed} of ${ids.length} sandboxes could not be destroyed.`);
  }

  async #end(id: string): Promise<void> {
    this.#set(id, { state: 'busy' });
    try {
      await this.#destroy(id);
      this.#set(id, { state: 'done' });
    } catch (error) {
      this.#set(id, { state: 'failed', reason: this.#explain(error) });
    }
  }

  #set(id: string, state: PruneState): void {
    this.#states.value = new Map(this.#states.value).set(id, state);
  }
}
