import { createHash, randomBytes } from 'node:crypto';

const PREFIX = 'inv_';
const TOKEN_BYTES = 32;
const FORM = /^inv_[A-Za-z0-9_-]{43}$/u;

/** `inv_` and 256 random bits. */
export function generateInvitation(): string {
  return `${PREFIX}${randomBytes(TOKEN_BYTES).toString('base64url')}`;
}

export function isInvitation(text: string): boolean {
  return FORM.test(text);
}

export function hashInvitation(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
