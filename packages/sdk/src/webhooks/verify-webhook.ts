import { decodeBase64 } from '../transport/base64.ts';
import { readObject, readString } from '../transport/wire.ts';

const PREFIX = 'whsec_';
const VERSION = 'v1';
/** A message that is older was recorded and sent again, or the clocks differ. */
const TOLERANCE_S = 300;

/** Headers of a request, as `fetch` has them or as Node's `request.headers`. */
export type WebhookHeaders =
  | { get: (name: string) => string | null }
  | Readonly<Record<string, string | readonly string[] | undefined>>;

/** A verified message of a webhook. */
export interface WebhookMessage {
  /** The same for each attempt: remember it to ignore repetitions. */
  id: string;
  /** Type of the event, or `webhook.test`. */
  type: string;
  /** The whole message. For an event, in the form of `GET /v1/events`. */
  payload: Record<string, unknown>;
}

/** The request is not a message of the webhook, or is too old. */
export class WebhookVerificationError extends Error {
  override readonly name = 'WebhookVerificationError';
}

/** Options of {@link verifyWebhook}. */
export interface VerifyWebhookOptions {
  /** Accepted age and lead of the time in the message, in seconds. Default 300. */
  toleranceSeconds?: number | undefined;
}

/**
 * Verifies a request of a webhook, as the Standard Webhooks specification says, and returns its message. `body` is the
 * body exactly as received, not parsed. Rejects with {@link WebhookVerificationError}, and with `TypeError` for a secret
 * that is none.
 *
 * @example
 * const { id, type, payload } = await verifyWebhook(await request.text(), request.headers, webhookSecret);
 */
export async function verifyWebhook(
  body: string | Uint8Array<ArrayBuffer>,
  headers: WebhookHeaders,
  secret: string,
  { toleranceSeconds = TOLERANCE_S }: VerifyWebhookOptions = {},
): Promise<WebhookMessage> {
  const key = await importSecret(secret);
  const id = readHeader(headers, 'webhook-id');
  const timestamp = readHeader(headers, 'webhook-timestamp');
  if (!/^\d{1,12}$/.test(timestamp)) throw new WebhookVerificationError('webhook-timestamp is no time');
  if (Math.abs(Date.now() / 1000 - Number(timestamp)) > toleranceSeconds)
    throw new WebhookVerificationError('webhook-timestamp is too far from now');
  const content = typeof body === 'string' ? new TextEncoder().encode(body) : body;
  const signed = join(new TextEncoder().encode(`${id}.${timestamp}.`), content);
  if (!(await isSigned(key, readHeader(headers, 'webhook-signature'), signed)))
    throw new WebhookVerificationError(
      'no signature fits: the message was changed, or the secret is another',
    );
  const payload = readObject(JSON.parse(new TextDecoder().decode(content)), 'the message');
  return { id, type: readString(payload, 'type'), payload: { ...payload } };
}

type HmacKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

function importSecret(secret: string): Promise<HmacKey> {
  const bytes = secret.startsWith(PREFIX) ? tryDecodeBase64(secret.slice(PREFIX.length)) : undefined;
  if (bytes === undefined || bytes.length === 0)
    throw new TypeError('secret must be the text of a webhook’s secret, whsec_…');
  return crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-256' }, false, ['verify']);
}

/** One of several signatures, separated by spaces, must fit: after a rotation there are two. */
async function isSigned(key: HmacKey, signatures: string, signed: Uint8Array<ArrayBuffer>): Promise<boolean> {
  for (const one of signatures.split(' ')) {
    const [version, text] = one.split(',', 2);
    const signature = version === VERSION && text !== undefined ? tryDecodeBase64(text) : undefined;
    if (signature !== undefined && (await crypto.subtle.verify('HMAC', key, signature, signed))) return true;
  }
  return false;
}

function readHeader(headers: WebhookHeaders, name: string): string {
  const value = typeof headers.get === 'function' ? headers.get(name) : Reflect.get(headers, name);
  if (typeof value === 'string' && value !== '') return value;
  throw new WebhookVerificationError(`the request has no header ${name}`);
}

function tryDecodeBase64(text: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return decodeBase64(text);
  } catch {
    return undefined;
  }
}

function join(first: Uint8Array, second: Uint8Array): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(first.length + second.length);
  joined.set(first);
  joined.set(second, first.length);
  return joined;
}
