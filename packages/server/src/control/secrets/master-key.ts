/**
 * The keys under which this service seals what it stores for its users. They never leave their file and this process.
 *
 *     current (32) │ older (32) │ …        sizes in bytes
 *
 * There is more than one only while a rotation is under way (rotate-master-key.ts): all of them open what they sealed, the
 * first seals. One file, so that it is replaced at once or not at all.
 */
import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync, readFileSync } from 'node:fs';
import { writeDurably } from '../../lib/files/durable-file.ts';
import { MASTER_KEY_BYTES } from './secret-box.ts';

/** In control's data directory. */
export const MASTER_KEY_NAME = 'master.key';
/** Rotations that were begun one after the other and never finished. */
const MAX_KEYS = 8;

export interface MasterKeys {
  current: Buffer;
  /** Newest first; empty but for a rotation that is not finished. */
  older: Buffer[];
}

export class MasterKeyError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'MasterKeyError';
  }
}

/**
 * Reads the keys, or makes one when there is none: on disk, directory entry and all, before anything is sealed with it.
 * Throws {@link MasterKeyError} for a file that holds no keys; it is left as it is, since it may be all that is left of one.
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

/** Makes a new key the current one; those that were there before still open. Durable when it returns. */
export function addMasterKey(path: string): MasterKeys {
  const { current, older } = openMasterKeys(path);
  const keys = { current: randomBytes(MASTER_KEY_BYTES), older: [current, ...older] };
  writeDurably(path, Buffer.concat([keys.current, ...keys.older]));
  return keys;
}

/** Only when nothing is sealed with the older ones any more. */
export function forgetOlderKeys(path: string): void {
  writeDurably(path, openMasterKeys(path).current);
}

function readKeys(path: string): Buffer {
  try {
    // One that was put back from a backup may have lost its mode.
    chmodSync(path, 0o600);
    return readFileSync(path);
  } catch (error) {
    throw new MasterKeyError(`${path}, the master key, cannot be read: it must belong to the service`, error);
  }
}
