import type { ByteRange, ListOptions, ObjectContent, ObjectInfo, ObjectStore } from './object-store.ts';
import { SingleFlight } from '../waiting/single-flight.ts';

/**
 * A store whose server is verified before it is used. A service may start while its object store is away; the first
 * operation after that then verifies, and fails if the server is unfit.
 */
export class VerifiedObjects implements ObjectStore {
  readonly #objects: ObjectStore;
  readonly #check: () => Promise<void>;
  readonly #flight = new SingleFlight<void>();
  #isVerified = false;

  constructor(objects: ObjectStore, check: () => Promise<void>) {
    this.#objects = objects;
    this.#check = check;
  }

  /** Does nothing if an earlier call succeeded. */
  async verify(): Promise<void> {
    if (this.#isVerified) return;
    await this.#flight.run('', this.#check);
    this.#isVerified = true;
  }

  async put(key: string, content: ObjectContent): Promise<void> {
    await this.verify();
    await this.#objects.put(key, content);
  }

  async putIfAbsent(key: string, content: ObjectContent): Promise<boolean> {
    await this.verify();
    return this.#objects.putIfAbsent(key, content);
  }

  async *get(key: string, range?: ByteRange): AsyncGenerator<Uint8Array> {
    await this.verify();
    yield* this.#objects.get(key, range);
  }

  async *list(prefix: string, options?: ListOptions): AsyncGenerator<ObjectInfo> {
    await this.verify();
    yield* this.#objects.list(prefix, options);
  }

  async delete(key: string): Promise<void> {
    await this.verify();
    await this.#objects.delete(key);
  }
}
