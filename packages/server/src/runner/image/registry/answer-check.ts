/** Translates unexpected answers of a registry into faults. */
import type { IncomingMessage } from 'node:http';
import { discard } from './exchange.ts';
import { RegistryFault } from './registry-fault.ts';
import type { Answer } from './redirects.ts';

/** Throws {@link RegistryFault} unless the status is one of `wanted`. */
export function checkStatus(
  { message, url }: Answer,
  wanted: readonly number[],
  hasCredentials: boolean,
): void {
  const status = message.statusCode ?? 0;
  if (wanted.includes(status)) {
    checkContentType(message, url);
    return;
  }
  discard(message);
  throw describeStatus(message, url, hasCredentials);
}

function checkContentType(message: IncomingMessage, url: URL): void {
  if (!/^text\/html\b/iu.test(message.headers['content-type'] ?? '')) return;
  discard(message);
  throw new RegistryFault('not-a-registry', url.host);
}

export function describeStatus(message: IncomingMessage, url: URL, hasCredentials: boolean): RegistryFault {
  const status = message.statusCode ?? 0;
  if (status === 404) {
    // A registry answers in JSON; a web server in front of something else does not.
    const isHtml = /^text\/html\b/iu.test(message.headers['content-type'] ?? '');
    return new RegistryFault(isHtml ? 'not-a-registry' : 'not-found', url.host);
  }
  if (status === 401 || status === 403) {
    return new RegistryFault(hasCredentials ? 'credentials-insufficient' : 'not-shown', url.host);
  }
  if (status === 429) {
    const retryAfterMs = readRetryAfterMs(message.headers['retry-after']);
    return new RegistryFault('rate-limit', url.host, {
      isPassing: retryAfterMs !== undefined,
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    });
  }
  return new RegistryFault('status', `${url.host} answered with the status ${status}`, {
    isPassing: status >= 500,
  });
}

/** Parses Retry-After, which is seconds or a date, to milliseconds from now. */
function readRetryAfterMs(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (/^\d{1,9}$/u.test(text)) return Number(text) * 1000;
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}
