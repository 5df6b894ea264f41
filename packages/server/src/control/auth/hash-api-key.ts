import { createHash } from 'node:crypto';

/** Returns the SHA-256 of a key. A key has 238 random bits, so guesses cannot invert even a plain fast hash. */
export function hashApiKey(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}
