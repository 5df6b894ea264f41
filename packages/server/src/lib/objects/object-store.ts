/**
 * A store for data that must outlive a machine: named objects of bytes, each written as a whole. Data with several
 * writers is a chain of numbered objects, each put only if it is absent.
 */
import { AppError } from '@coppice/contract';

/** Content of an object; the store reads it once, while it writes. */
export type ObjectContent = Iterable<Uint8Array | string> | AsyncIterable<Uint8Array | string>;

export interface ObjectInfo {
  key: string;
  sizeBytes: number;
}

export interface ByteRange {
  start: number;
  /** Offset after the last byte; default: the end of the object. */
  end?: number;
}

export interface ListOptions {
  /** Objects that a store may ask its server for at once; only tests of a server need it. */
  pageSize?: number;
}

/**
 * Keys are names joined by `/`: see {@link requireObjectKey}. If a write fails with `unavailable`, it may have happened or
 * may still happen.
 */
export interface ObjectStore {
  /**
   * Puts or replaces an object. Nothing of it is visible until this resolves; then it is durable and visible to all.
   */
  put(key: string, content: ObjectContent): Promise<void>;
  /** Puts an object unless the key exists; then returns false. Of several concurrent calls one wins. */
  putIfAbsent(key: string, content: ObjectContent): Promise<boolean>;
  /** Reads an object, or a range of it. Throws AppError `not_found`. */
  get(key: string, range?: ByteRange): AsyncIterable<Uint8Array>;
  /** Lists the objects whose key begins with `prefix`, sorted by key. */
  list(prefix: string, options?: ListOptions): AsyncIterable<ObjectInfo>;
  /** Deletes an object. Does nothing if it does not exist. */
  delete(key: string): Promise<void>;
  /** Verifies with an object at this key what the store itself needs from its server. Throws ObjectStoreError. */
  checkServer?(key: string): Promise<void>;
}

const MAX_KEY_LENGTH = 900;
/** No name begins with a dot, so no key leads to a parent directory or to a store's internal files. */
const NAME = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$/u;

export function isObjectKey(key: string): boolean {
  return key.length <= MAX_KEY_LENGTH && key.split('/').every((name) => NAME.test(name));
}

/** Validates a key for every store. Throws AppError `invalid_request` for a key that no store accepts. */
export function requireObjectKey(key: string): string {
  if (isObjectKey(key)) return key;
  throw new AppError(
    'invalid_request',
    `object key ${JSON.stringify(key.slice(0, 100))}: must be names of A–Z, a–z, 0–9, ".", "_", "-" joined by "/"`,
  );
}

export function objectNotFound(key: string): AppError {
  return new AppError('not_found', `there is no object ${key}`);
}
