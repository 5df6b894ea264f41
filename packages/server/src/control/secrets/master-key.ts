/**
 * The keys with which this service seals the stored secrets of its users. They never leave their file and this process.
 *
 *     current (32) │ older (32) │ …        sizes in bytes
 *
 * There is more than one key only while a rotation is under way (rotate-master-key.ts): the first seals, and each opens
 * what it sealed. All are in one file, so that they are replaced atomically.
 */
import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync, readFileSync } from 'node:fs';
import { writeDurably } from '../../lib/files/durable-file.ts';
import { MASTER_KEY_BYTES } from './secret-box.ts';

/** File name in control's data directory. */
export const MASTER_KEY_NAME = 'master.key';
/** Limit of keys. There are several only if rotations were begun one after the other and never finished. */
const MAX_KEYS = 8;

export interface MasterKeys {
  current: Buffer;
  /** Newest first; empty unless a rotation is unfinished. */
  older: Buffer[];
}

export class MasterKeyError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'MasterKeyError';
  }
}

/**
 * Reads the keys, or creates one if there is none. A new key and its directory entry are on disk before anything is
 * sealed with it. Throws {@link MasterKeyError} for a file without keys. That file stays unchanged, since it may be the
 * rest of a key.
 */
export function openMasterKeys(path: string): MasterKeys {
  if (!existsSync(path)) writeDurably(path, randomBytes(MASTER_KEY_BYTES));
  const bytes = readKeys(path);
  const count = bytes.length / MASTER_KEY_BYTES;
  if (!Number.isInteger(count) || count < 1 || count > MAX_KEYS) {
    throw new MasterKeyError(
      `${path} has ${bytes.length} bytes, a master key has ${MASTER_KEY_BYTES}: put it back from a backup, or ` +
        'remove the file and store all secrets again',
    );
  }
  const keys = Array.from({ length: count }, (_, index) =>
    bytes.subarray(index * MASTER_KEY_BYTES, (index + 1) * MASTER_KEY_BYTES),
  );
  const [current = bytes, ...older] = keys;
  return { current, older };
}

/** Makes a new key the current one. Earlier keys still open. The file is durable when this returns. */
export function addMasterKey(path: string): MasterKeys {
  const { current, older } = openMasterKeys(path);
  const keys = { current: randomBytes(MASTER_KEY_BYTES), older: [current, ...older] };
  writeDurably(path, Buffer.concat([keys.current, ...keys.older]));
  return keys;
}

/** Removes the older keys. Call only when nothing is sealed with them any more. */
export function forgetOlderKeys(path: string): void {
  writeDurably(path, openMasterKeys(path).current);
}

function readKeys(path: string): Buffer {
  try {
    // A file that was restored from a backup may have lost its mode.
    chmodSync(path, 0o600);
    return readFileSync(path);
  } catch (error) {
    throw new MasterKeyError(`${path}, the master key, cannot be read: it must belong to the service`, error);
  }
}
