import { setTimeout as delay } from 'node:timers/promises';
import type { Owner } from '../../ownership/owners.ts';

const LOOK_EVERY_MS = 250;
/** Of exchanges that are open: their owner may be gone without a sign of it. */
const WATCH_EVERY_MS = 5_000;

/** Finds the owner of a runner, or a control, by its id. */
export type FindOwner = (id: string) => Promise<Owner | undefined>;

/** Looks up owners of runners, and controls. Requests that wait for the same one share each look. */
export class OwnerLookup {
  readonly #find: FindOwner;
  readonly #looks = new Map<string, Promise<Owner | undefined>>();

  constructor(find: FindOwner) {
    this.#find = find;
  }

  /** Returns undefined while no control answers for the id. The answer may be a quarter of a second old. */
  look(id: string): Promise<Owner | undefined> {
    const under = this.#looks.get(id);
    if (under !== undefined) return under;
    const look = this.#find(id);
    this.#looks.set(id, look);
    const forget = (): void => void this.#looks.delete(id);
    look.then(() => setTimeout(forget, LOOK_EVERY_MS).unref(), forget);
    return look;
  }

  pause(): Promise<void> {
    return delay(LOOK_EVERY_MS);
  }

  /** Calls `onGone` once when another control, or none for two looks, answers for the id, unless the result is disposed before. */
  watch(id: string, { id: known }: Owner, onGone: () => void): Disposable {
    let misses = 0;
    const look = async (): Promise<void> => {
      const owner = await this.look(id).catch(() => undefined);
      misses = owner?.id === known ? 0 : misses + (owner === undefined ? 1 : 2);
      if (misses < 2) return;
      clearInterval(timer);
      onGone();
    };
    const timer = setInterval(() => void look(), WATCH_EVERY_MS);
    return { [Symbol.dispose]: () => clearInterval(timer) };
  }
}
