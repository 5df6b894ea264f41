/** The key under which this service seals what it stores for its users. It never leaves its file and this process. */
import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync, readFileSync } from 'node:fs';
import { writeDurably } from '../../lib/durable-file.ts';
import { MASTER_KEY_BYTES } from './secret-box.ts';

export class MasterKeyError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'MasterKeyError';
  }
}

/**
 * Reads the key, or makes it when there is none: on disk, directory entry and all, before anything is sealed with it.
 * Throws {@link MasterKeyError} for a file that is no key; it is left as it is, since it may be all that is left of one.
 */
export function openMasterKey(path: string): Buffer {
  if (!existsSync(path)) writeDurably(path, randomBytes(MASTER_KEY_BYTES));
  const key = readKey(path);
  if (key.length !== MASTER_KEY_BYTES) {
    throw new MasterKeyError(
      `${path} has ${key.length} bytes, the master key has ${MASTER_KEY_BYTES}: put it back from a backup, or ` +
        'remove the file and store all secrets again',
    );
  }
  return key;
}

function readKey(path: string): Buffer {
  try {
    // One that was put back from a backup may have lost its mode.
    chmodSync(path, 0o600);
    return readFileSync(path);
  } catch (error) {
    throw new MasterKeyError(`${path}, the master key, cannot be read: it must belong to the service`, error);
  }
}
