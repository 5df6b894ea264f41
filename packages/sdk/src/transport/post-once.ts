import type { CallOptions } from './client-options.ts';
import type { Transport } from './transport.ts';

/**
 * Of calls that pull an image or write a sandbox's memory to disk. Below the 300 s after which Node's fetch gives up
 * waiting for headers, so that the error is the client's own.
 */
const SLOW_CALL_TIMEOUT_MS = 290_000;

/** How to make a call that is not to be carried out twice: it creates something, or takes a sandbox back. */
export interface CreateCallOptions extends CallOptions {
  /**
   * Calls with the same key and the same options are carried out once only, for 24 hours. Default: a new key for each
   * call, which covers the client's own retries. Give one to repeat a call whose answer was lost.
   */
  idempotencyKey?: string | undefined;
}

/** Sends a POST that can be tried again because its key makes one of all tries. */
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

export function slowTimeoutMs(transport: Transport): number {
  return Math.max(transport.timeoutMs, SLOW_CALL_TIMEOUT_MS);
}

/** 128 random bits; `crypto.randomUUID` is missing on web pages without TLS. */
function generateIdempotencyKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
