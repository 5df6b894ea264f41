import { invariant } from '../../../lib/invariant.ts';

/** The users of unpacking processes: each preparation has one to itself. */
export class UnpackUsers {
  readonly #free: number[];
  readonly #isShared: boolean;

  /** `uids`: as many as preparations run at once; empty where all run as the service's own user. */
  constructor(uids: readonly number[]) {
    this.#free = [...uids];
    this.#isShared = uids.length === 0;
  }

  /** Takes a user until the result is disposed; its `uid` is null for the service's own user. */
  take(): Disposable & { uid: number | null } {
    if (this.#isShared) return { uid: null, [Symbol.dispose]: () => undefined };
    const uid = this.#free.pop();
    invariant(uid, 'there are as many users as preparations');
    return { uid, [Symbol.dispose]: () => void this.#free.push(uid) };
  }
}
