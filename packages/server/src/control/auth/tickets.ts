/**
 * Tickets open a WebSocket where no header can be sent, as from a browser: short-lived, for one sandbox, for one
 * connection, and worth no more than the API key that they were asked for with.
 */
import { randomBytes } from 'node:crypto';
import { AppError, type Ticket } from '@coppice/contract';
import { z } from 'zod';
import { TokenSigner } from '../secrets/token-signer.ts';

const NONCE_BYTES = 12;

const Payload = z.strictObject({
  sandbox_id: z.string(),
  api_key_id: z.string(),
  /** Unix milliseconds. */
  expires_at: z.int(),
  nonce: z.string(),
});

export interface TicketHolder {
  sandboxId: string;
  apiKeyId: string;
}

export class Tickets {
  readonly #signer: TokenSigner<typeof Payload>;
  readonly #now: () => number;
  /** Nonces that were used, with when their tickets expire; no longer than that they are needed. */
  readonly #used = new Map<string, number>();

  constructor(masterKey: Buffer, now: () => number = Date.now) {
    this.#signer = new TokenSigner(masterKey, { purpose: 'ticket', schema: Payload });
    this.#now = now;
  }

  issue({ sandboxId, apiKeyId }: TicketHolder, expiresInS: number): Ticket {
    const expiresAt = this.#now() + expiresInS * 1000;
    const nonce = randomBytes(NONCE_BYTES).toString('base64url');
    const payload = { sandbox_id: sandboxId, api_key_id: apiKeyId, expires_at: expiresAt, nonce };
    return { ticket: this.#signer.sign(payload), expires_at: new Date(expiresAt).toISOString() };
  }

  /** Whose it is; AppError `unauthorized` for one that is used, expired or of another sandbox. */
  redeem(ticket: string, sandboxId: string): TicketHolder {
    const payload = this.#signer.verify(ticket);
    const now = this.#now();
    this.#forgetExpired(now);
    if (payload === undefined || payload.sandbox_id !== sandboxId)
      throw new AppError('unauthorized', 'ticket: is not one for this sandbox; POST …/tickets gives one');
    if (payload.expires_at <= now) throw new AppError('unauthorized', 'ticket: has expired; ask for another');
    if (this.#used.has(payload.nonce))
      throw new AppError('unauthorized', 'ticket: was used before; each connection needs its own');
    this.#used.set(payload.nonce, payload.expires_at);
    return { sandboxId, apiKeyId: payload.api_key_id };
  }

  #forgetExpired(now: number): void {
    for (const [nonce, expiresAt] of this.#used) if (expiresAt <= now) this.#used.delete(nonce);
  }
}
