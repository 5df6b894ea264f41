import { randomBytes } from 'node:crypto';

export const ID_HEX_DIGITS = 20;

/** A name that nobody can guess and that comes once: the prefix of its kind, and hexadecimal digits. */
export function newId(prefix: string): string {
  return `${prefix}${randomBytes(ID_HEX_DIGITS / 2).toString('hex')}`;
}
