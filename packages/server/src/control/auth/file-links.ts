/**
 * Links to single files: signed, with an expiry, and for one sandbox, path and direction. A link grants no more than the
 * API key that requested it, and ends with that key. Nothing is stored.
 */
import { randomBytes } from 'node:crypto';
import { AppError, FILE_LINK_METHODS } from '@coppice/contract';
import { z } from 'zod';
import { TokenSigner } from '../secrets/token-signer.ts';

/** Links of the same file differ, so that a log of one says nothing about another. */
const NONCE_BYTES = 12;
/** The signer verifies no longer token. */
const MAX_TOKEN_LENGTH = 2048;

const Payload = z.strictObject({
  sandbox_id: z.string(),
  api_key_id: z.string(),
  path: z.string(),
  method: z.enum(FILE_LINK_METHODS),
  /** Unix milliseconds. */
  expires_at: z.int(),
  nonce: z.string(),
});

/** Access that a link gives. */
export interface LinkedFile {
  sandboxId: string;
  apiKeyId: string;
  path: string;
  method: (typeof FILE_LINK_METHODS)[number];
}

export class FileLinks {
  readonly #signer: TokenSigner<typeof Payload>;
  readonly #now: () => number;

  constructor(masterKey: Buffer, now: () => number = Date.now) {
    this.#signer = new TokenSigner(masterKey, { purpose: 'file link', schema: Payload });
    this.#now = now;
  }

  /** Throws `invalid_request` for a path that is too long for a link. */
  issue(
    { sandboxId, apiKeyId, path, method }: LinkedFile,
    expiresInS: number,
  ): { token: string; expiresAt: number } {
    const expiresAt = this.#now() + expiresInS * 1000;
    const nonce = randomBytes(NONCE_BYTES).toString('base64url');
    const file = { sandbox_id: sandboxId, api_key_id: apiKeyId, path, method };
    const token = this.#signer.sign({ ...file, expires_at: expiresAt, nonce });
    if (token.length > MAX_TOKEN_LENGTH)
      throw new AppError('invalid_request', 'path: is too long for a link; use a path of at most 1000 bytes');
    return { token, expiresAt };
  }

  /** Whether this service has given the link, which may have expired. */
  isSigned(token: string): boolean {
    return this.#signer.verify(token) !== undefined;
  }

  /** Throws `unauthorized` for a link that this service has not given, or that has expired. */
  open(token: string): LinkedFile {
    const payload = this.#signer.verify(token);
    if (payload === undefined)
      throw new AppError('unauthorized', 'the link is not one of this service; ask for a new one');
    if (payload.expires_at <= this.#now())
      throw new AppError('unauthorized', 'the link has expired; ask for a new one');
    const { sandbox_id, api_key_id, path, method } = payload;
    return { sandboxId: sandbox_id, apiKeyId: api_key_id, path, method };
  }
}
