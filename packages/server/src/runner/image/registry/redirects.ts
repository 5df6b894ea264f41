/**
 * Follows redirects; each is a new request to a party that is checked again. Credentials are sent to the first origin
 * only. A redirect to a private address is followed only between parties that the operator named, or within one of
 * them.
 */
import type { IncomingMessage } from 'node:http';
import { discard, type Dialer } from './exchange.ts';
import { RegistryFault } from './registry-fault.ts';
import type { Endpoint, RegistryEndpoints } from './registry-settings.ts';

export interface Request {
  method: 'GET' | 'HEAD';
  url: URL;
  headers: Readonly<Record<string, string>>;
  /** Sent to the first origin only. */
  authorization?: string;
  /** The endpoint of the registry; its trust limits where a redirect may lead. */
  endpoint: Endpoint;
  signal: AbortSignal;
}

export interface Answer {
  message: IncomingMessage;
  /** The URL after all redirects. */
  url: URL;
}

export interface FollowerOptions {
  dialer: Dialer;
  endpoints: RegistryEndpoints;
  maxRedirects: number;
}

const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

export class RedirectFollower {
  readonly #options: FollowerOptions;

  constructor(options: FollowerOptions) {
    this.#options = options;
  }

  async request(request: Request): Promise<Answer> {
    const { maxRedirects } = this.#options;
    let { url } = request;
    for (let redirects = 0; redirects <= maxRedirects; redirects++) {
      const message = await this.#send(request, url);
      if (!REDIRECTS.has(message.statusCode ?? 0)) return { message, url };
      discard(message);
      url = findTarget(url, message.headers.location);
    }
    throw new RegistryFault('redirect', `${request.url.host} redirected more than ${maxRedirects} times`);
  }

  #send(request: Request, url: URL): Promise<IncomingMessage> {
    const { method, headers, authorization, endpoint, signal } = request;
    const isFirstOrigin = url.origin === request.url.origin;
    return this.#options.dialer.exchange({
      method,
      url,
      headers: isFirstOrigin && authorization !== undefined ? { ...headers, authorization } : headers,
      mayBePrivate: endpoint.isConfigured && this.#options.endpoints.isConfigured(url),
      isCertificateChecked: !endpoint.isConfigured || !this.#options.endpoints.isUnchecked(url),
      signal,
    });
  }
}

function findTarget(from: URL, location: string | undefined): URL {
  const target =
    location !== undefined && URL.canParse(location, from.href) ? new URL(location, from) : undefined;
  if (target === undefined || (target.protocol !== 'https:' && target.protocol !== 'http:')) {
    throw new RegistryFault('redirect', `${from.host} redirected to a location that is no web address`);
  }
  if (from.protocol === 'https:' && target.protocol === 'http:') {
    throw new RegistryFault('redirect', `${from.host} redirected from HTTPS to plain HTTP at ${target.host}`);
  }
  return target;
}
