import type { CallOptions } from './client-options.ts';
import type { Transport } from './transport.ts';

/**
 * Timeout of calls that pull an image or write the memory of a sandbox to disk. It is below the 300 s after which
 * Node's fetch stops waiting for headers, so that the error is the client's own.
 */
const SLOW_CALL_TIMEOUT_MS = 290_000;

/** Options of a call that the service must not carry out twice: it creates something, or rolls a sandbox back. */
export interface CreateCallOptions extends CallOptions {
  /**
   * Idempotency key. For 24 hours the service carries out calls with the same key and the same options only once; other
   * options reject with code `idempotency_mismatch`. Default: a new key for each call, which covers the client's own
   * retries. Pass a key to be able to repeat a call whose answer was lost.
   */
  idempotencyKey?: string | undefined;
}

/** Sends a POST with an idempotency key. It can be retried because the service carries out all attempts only once. */
export async function postOnce<Value>(
  transport: Transport,
  request: { path: string; body: object; call: CreateCallOptions },
  parse: (value: unknown) => Value,
): Promise<Value> {
  const { path, body, call } = request;
  const answer = await transport.callJson(
    {
      method: 'POST',
      path,
      headers: {
        'content-type': 'application/json',
        'idempotency-key': call.idempotencyKey ?? generateIdempotencyKey(),
      },
      body: JSON.stringify(body),
      idempotent: true,
      signal: call.signal,
      timeoutMs: slowTimeoutMs(transport),
    },
    parse,
  );
  return answer.value;
}

/** Returns the timeout in milliseconds of a slow call: at least 290 s, more if the client's `timeoutMs` is larger. */
export function slowTimeoutMs(transport: Transport): number {
  return Math.max(transport.timeoutMs, SLOW_CALL_TIMEOUT_MS);
}

/** Returns 128 random bits in hexadecimal digits. `crypto.randomUUID` is missing on web pages without TLS. */
function generateIdempotencyKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
