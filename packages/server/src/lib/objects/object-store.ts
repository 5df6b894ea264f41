/**
 * Where all goes that must outlive a machine: named pieces of bytes, each written whole. What is to be changed by several
 * writers is a chain of numbered objects, each put only if it is absent.
 */
import { AppError } from '@coppice/contract';

/** Read once, as it is sent. */
export type ObjectContent = Iterable<Uint8Array | string> | AsyncIterable<Uint8Array | string>;

export interface ObjectInfo {
  key: string;
  sizeBytes: number;
}

export interface ByteRange {
  start: number;
  /** The first byte that is not part of it; the end of the object unless given. */
  end?: number;
}

/** Keys are names joined by `/`: see {@link requireObjectKey}. */
export interface ObjectStore {
  /** Replaces what is there. It is durable, and seen by everybody, when this resolves; before that nothing of it is. */
  put(key: string, content: ObjectContent): Promise<void>;
  /** False, and nothing is done, when there is one of this key. Of several at once one wins. */
  putIfAbsent(key: string, content: ObjectContent): Promise<boolean>;
  /** Throws AppError `not_found`. */
  get(key: string, range?: ByteRange): AsyncIterable<Uint8Array>;
  /** Those whose key begins with `prefix`, in the order of their keys. */
  list(prefix: string): AsyncIterable<ObjectInfo>;
  /** One that is not there is no error. */
  delete(key: string): Promise<void>;
}

const MAX_KEY_LENGTH = 900;
/** No name begins with a dot: neither a way up nor what a store keeps for itself. */
const NAME = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$/u;

/** Throws AppError `invalid_request` for what no store would take; every store checks with it. */
export function requireObjectKey(key: string): string {
  if (key.length <= MAX_KEY_LENGTH && key.split('/').every((name) => NAME.test(name))) return key;
  throw new AppError(
    'invalid_request',
    `object key ${JSON.stringify(key.slice(0, 100))}: must be names of A–Z, a–z, 0–9, ".", "_", "-" joined by "/"`,
  );
}

export function objectNotFound(key: string): AppError {
  return new AppError('not_found', `there is no object ${key}`);
}
