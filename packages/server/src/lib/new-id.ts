import { randomBytes } from 'node:crypto';

export const ID_HEX_DIGITS = 20;

/** Returns a unique, unguessable id: the prefix of its kind, and hexadecimal digits. */
export function newId(prefix: string): string {
  return `${prefix}${randomBytes(ID_HEX_DIGITS / 2).toString('hex')}`;
}
