/**
 * CORS: the pages of other origins that may use the API. Below `/v1` only a key counts, and the page itself must send
 * it, and below `/files` only the token in the path. So by default pages of any origin may use them; no answer allows
 * browsers to send cookies. `/account`, where cookies count, and preview origins, where one cookie counts, stay closed.
 * `/mcp` is open to origins that the operator named.
 *
 * The port proxy is also below `/v1`. There the service answers preflights, which carry no key, and sets the CORS
 * headers in place of the guest.
 */
import { AppError } from '@coppice/contract';
import cors, { type FastifyCorsOptions } from '@fastify/cors';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { App } from '../app.ts';
import { isProxied } from './proxied-route.ts';
import { toHeaders } from '../answers/raw-answer.ts';

/** Response headers that a page may read in addition to those that every page may. */
const EXPOSED_HEADERS = [
  'accept-ranges',
  'content-disposition',
  'content-length',
  'content-range',
  'idempotency-replayed',
  'link',
  'location',
  'mcp-session-id',
  'ratelimit',
  'ratelimit-policy',
  'retry-after',
  'www-authenticate',
  'x-request-id',
];
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'];
/** No browser caches a preflight for longer. */
const MAX_AGE_S = 7200;

const LOOPBACK = /^https?:\/\/(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?$/u;

/** Adds CORS. `origins`: as browsers send them; `*` allows any. */
export async function addCrossOrigin(app: App, origins: readonly string[]): Promise<void> {
  await app.register(cors, {
    delegator: (request, done) => done(null, buildOptions(request, origins)),
  });
}

/**
 * Throws `forbidden_origin` for a request that a page sent, unless the operator named its origin. Unlike `/v1`, `/mcp` is
 * closed to other pages: the protocol requires it, and only programs use it by themselves. A page of the service's own
 * origin counts only on loopback: elsewhere a name of the page's owner may resolve to the service (DNS rebinding).
 */
export function assertNoForeignPage(
  { headers, ownOrigin }: FastifyRequest,
  origins: readonly string[],
): void {
  const { origin } = headers;
  if (origin === undefined || listNamed(origins).includes(origin)) return;
  if (origin === ownOrigin && LOOPBACK.test(origin)) return;
  throw new AppError(
    'forbidden_origin',
    `a page of ${origin.slice(0, 200)} may not use MCP; the operator can allow it in COPPICE_CORS_ORIGINS`,
  );
}

function buildOptions(request: FastifyRequest, all: readonly string[]): FastifyCorsOptions {
  const origins = listAllowed(request.url, all);
  if (origins.length === 0) return { origin: false };
  const isGuests = isProxied(request);
  return {
    origin: [...origins],
    methods: isGuests ? '*' : METHODS,
    exposedHeaders: isGuests ? '*' : EXPOSED_HEADERS,
    maxAge: MAX_AGE_S,
    preflight: isPreflight(request),
    strictPreflight: false,
  };
}

function listAllowed(url: string, origins: readonly string[]): readonly string[] {
  if (/^\/mcp(?:\?|$)/u.test(url)) return listNamed(origins);
  return /^\/(?:v1|files)(?:[/?]|$)/u.test(url) ? origins : [];
}

function listNamed(origins: readonly string[]): readonly string[] {
  return origins.filter((origin) => origin !== '*');
}

/** An OPTIONS with a key is not from a browser: below the port proxy it is for the guest, like any other method. */
function isPreflight({ method, headers }: FastifyRequest): boolean {
  return (
    method === 'OPTIONS' &&
    headers.origin !== undefined &&
    headers['access-control-request-method'] !== undefined &&
    headers.authorization === undefined
  );
}

/** Returns the CORS and `Vary` headers of a forwarded answer: names and values alternate. */
export function listCrossOriginFields(reply: FastifyReply): string[] {
  return Object.entries(toHeaders(reply))
    .filter(([name]) => name === 'vary' || name.startsWith('access-control-'))
    .flatMap(([name, value]) => [name, String(value)]);
}
