/** Answers of the proxy itself, in the form of all errors of the API. */
import type { ServerResponse } from 'node:http';
import type { ProxyFault } from './proxy-fault.ts';
import type { Refusal } from './refusal.ts';

/** After this time control has sent the secrets again. */
export const RETRY_AFTER_S = 2;
const UNAVAILABLE = 503;

export interface ErrorAnswer {
  status: number;
  code: string;
  message: string;
}

export function toErrorAnswer(from: Refusal | ProxyFault): ErrorAnswer {
  const { status, message } = from;
  return { status, message, code: 'reason' in from ? from.reason.replaceAll('-', '_') : from.code };
}

export function answerError(response: ServerResponse, answer: ErrorAnswer): void {
  const body = formatBody(answer);
  if (answer.status === UNAVAILABLE) response.setHeader('retry-after', RETRY_AFTER_S);
  response.writeHead(answer.status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    'cache-control': 'no-store',
  });
  response.end(body);
}

export function formatBody({ code, message }: ErrorAnswer): string {
  return JSON.stringify({ error: { code, message } });
}
