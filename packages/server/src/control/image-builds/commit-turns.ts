/** Lets the builds of one organization make images one after another, so that each knows the room that the others left. */
import { SerialQueue } from '../../lib/waiting/serial-queue.ts';
import { untilAborted } from '../../lib/waiting/deadline.ts';

export class CommitTurns {
  readonly #turns = new Map<string, { queue: SerialQueue; users: number }>();

  /** Rejects as soon as `signal` fires; a task that runs is not waited for. */
  async run<T>(organizationId: string, signal: AbortSignal, task: () => Promise<T>): Promise<T> {
    const turn = this.#turns.get(organizationId) ?? { queue: new SerialQueue(), users: 0 };
    this.#turns.set(organizationId, turn);
    turn.users += 1;
    const result = turn.queue
      .run(() => {
        signal.throwIfAborted();
        return task();
      })
      .finally(() => {
        turn.users -= 1;
        if (turn.users === 0) this.#turns.delete(organizationId);
      });
    result.catch(() => undefined);
    return untilAborted(signal, result);
  }
}
