import { createHash } from 'node:crypto';

/** A key is 238 random bits, so a plain fast hash cannot be guessed backwards. */
export function hashApiKey(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}
