import { setTimeout as delay } from 'node:timers/promises';
import type { Owner } from '../../ownership/owners.ts';

const LOOK_EVERY_MS = 250;
/** Of exchanges that are open: their owner may be gone without a sign of it. */
const WATCH_EVERY_MS = 5_000;

export type FindOwner = (runnerId: string) => Promise<Owner | undefined>;

/** Looks up owners of runners. Requests that wait for the same one share each look. */
export class OwnerLookup {
  readonly #find: FindOwner;
  readonly #looks = new Map<string, Promise<Owner | undefined>>();

  constructor(find: FindOwner) {
    this.#find = find;
  }

  /** Returns undefined while no control answers for the runner. The answer may be a quarter of a second old. */
  look(runnerId: string): Promise<Owner | undefined> {
    const under = this.#looks.get(runnerId);
    if (under !== undefined) return under;
    const look = this.#find(runnerId);
    this.#looks.set(runnerId, look);
    const forget = (): void => void this.#looks.delete(runnerId);
    look.then(() => setTimeout(forget, LOOK_EVERY_MS).unref(), forget);
    return look;
  }

  pause(): Promise<void> {
    return delay(LOOK_EVERY_MS);
  }

  /** Calls `onGone` once when another control, or none for two looks, has the runner, unless the result is disposed before. */
  watch(runnerId: string, { id }: Owner, onGone: () => void): Disposable {
    let misses = 0;
    const look = async (): Promise<void> => {
      const owner = await this.look(runnerId).catch(() => undefined);
      misses = owner?.id === id ? 0 : misses + (owner === undefined ? 1 : 2);
      if (misses < 2) return;
      clearInterval(timer);
      onGone();
    };
    const timer = setInterval(() => void look(), WATCH_EVERY_MS);
    return { [Symbol.dispose]: () => clearInterval(timer) };
  }
}
