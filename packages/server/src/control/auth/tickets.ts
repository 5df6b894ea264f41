/**
 * Tickets open a WebSocket for clients that cannot send a header, such as browsers. A ticket is short-lived, for one
 * sandbox and one connection, and grants no more than the API key that requested it.
 */
import { randomBytes } from 'node:crypto';
import { AppError, type Ticket } from '@coppice/contract';
import { z } from 'zod';
import { TokenSigner } from '../secrets/token-signer.ts';
import type { UsedTickets } from './used-tickets.ts';

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
  readonly #used: Pick<UsedTickets, 'add'>;

  constructor(masterKey: Buffer, used: Pick<UsedTickets, 'add'>, now: () => number = Date.now) {
    this.#used = used;
    this.#signer = new TokenSigner(masterKey, { purpose: 'ticket', schema: Payload });
    this.#now = now;
  }

  issue({ sandboxId, apiKeyId }: TicketHolder, expiresInS: number): Ticket {
    const expiresAt = this.#now() + expiresInS * 1000;
    const nonce = randomBytes(NONCE_BYTES).toString('base64url');
    const payload = { sandbox_id: sandboxId, api_key_id: apiKeyId, expires_at: expiresAt, nonce };
    return { ticket: this.#signer.sign(payload), expires_at: new Date(expiresAt).toISOString() };
  }

  /**
   * Returns the ticket's holder. Throws `unauthorized` for a used or expired ticket, or one of another sandbox. `isRedeemed`: another
   * control has redeemed it for the same request.
   */
  async redeem(ticket: string, sandboxId: string, isRedeemed = false): Promise<TicketHolder> {
    // The signature first: a forged ticket costs no more than its hash.
    const payload = this.#signer.verify(ticket);
    if (payload === undefined || payload.sandbox_id !== sandboxId)
      throw new AppError('unauthorized', 'ticket: is not one for this sandbox; POST …/tickets gives one');
    if (isRedeemed) return { sandboxId, apiKeyId: payload.api_key_id };
    if (payload.expires_at <= this.#now())
      throw new AppError('unauthorized', 'ticket: has expired; ask for another');
    if (!(await this.#used.add(payload.nonce, payload.expires_at)))
      throw new AppError('unauthorized', 'ticket: was used before; each connection needs its own');
    return { sandboxId, apiKeyId: payload.api_key_id };
  }
}
