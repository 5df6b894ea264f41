/** Secrets and signatures of the Standard Webhooks specification. */
import { createHmac, randomBytes } from 'node:crypto';
import { Secret } from '../../lib/secret.ts';
import type { SecretContext } from '../secrets/secret-box.ts';

const PREFIX = 'whsec_';
const SECRET_BYTES = 32;

export function generateWebhookSecret(): Secret {
  return new Secret(`${PREFIX}${randomBytes(SECRET_BYTES).toString('base64')}`);
}

/** The context that a secret of a webhook is bound to when sealed. */
export function bindWebhookSecret(organizationId: string, webhookId: string): SecretContext {
  return { organizationId, purpose: 'webhook secret', name: webhookId };
}

export interface SignedMessage {
  id: string;
  /** Unix seconds. */
  timestamp: number;
  body: string;
}

/** Returns the header `webhook-signature`: one signature for each secret. */
export function signWebhook(secrets: readonly Secret[], { id, timestamp, body }: SignedMessage): string {
  return secrets
    .map((secret) => {
      const key = Buffer.from(secret.reveal().slice(PREFIX.length), 'base64');
      return `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`;
    })
    .join(' ');
}
