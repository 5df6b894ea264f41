/**
 * Signed tokens that this service gives out and verifies: a JSON object and a keyed hash of it, each as base64url.
 *
 *     <payload>.<HMAC-SHA256(key of the purpose, payload)>
 *
 * Each purpose has its own key, derived from the master key, so that a token of one purpose is invalid for another. The
 * holder of a token can read its payload.
 */
import { createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';
import type { z } from 'zod';

const KEY_BYTES = 32;
const MAX_TOKEN_LENGTH = 2048;

export class TokenSigner<T extends z.ZodType> {
  readonly #key: Buffer;
  readonly #schema: T;

  constructor(masterKey: Buffer, { purpose, schema }: { purpose: string; schema: T }) {
    this.#key = Buffer.from(hkdfSync('sha256', masterKey, '', `coppice token: ${purpose}`, KEY_BYTES));
    this.#schema = schema;
  }

  sign(payload: z.infer<T>): string {
    const text = Buffer.from(JSON.stringify(payload)).toString('base64url');
    return `${text}.${this.#mac(text).toString('base64url')}`;
  }

  /** Returns the payload, or undefined for a text that this service has not signed for this purpose. */
  verify(token: string): z.infer<T> | undefined {
    const [text = '', mac = '', ...rest] = token.slice(0, MAX_TOKEN_LENGTH).split('.');
    const given = Buffer.from(mac, 'base64url');
    const expected = this.#mac(text);
    if (rest.length > 0 || given.length !== expected.length || !timingSafeEqual(given, expected))
      return undefined;
    return this.#schema.parse(JSON.parse(Buffer.from(text, 'base64url').toString('utf8')));
  }

  #mac(text: string): Buffer {
    return createHmac('sha256', this.#key).update(text).digest();
  }
}
