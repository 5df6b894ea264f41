/**
 * CORS: the pages of other origins that may use the API. Below `/v1` only a key counts, and the page itself must send
 * it, and below `/files` only the token in the path. So by default pages of any origin may use them; no answer allows
 * browsers to send cookies. `/account`, where cookies count, and preview origins, where one cookie counts, stay closed.
 *
 * The port proxy is also below `/v1`. There the service answers preflights, which carry no key, and sets the CORS
 * headers in place of the guest.
 */
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
  'ratelimit',
  'ratelimit-policy',
  'retry-after',
  'www-authenticate',
  'x-request-id',
];
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'];
/** No browser caches a preflight for longer. */
const MAX_AGE_S = 7200;

/** Adds CORS. `origins`: as browsers send them; `*` allows any. */
export async function addCrossOrigin(app: App, origins: readonly string[]): Promise<void> {
  await app.register(cors, {
    delegator: (request, done) => done(null, buildOptions(request, origins)),
  });
}

function buildOptions(request: FastifyRequest, origins: readonly string[]): FastifyCorsOptions {
  if (origins.length === 0 || !/^\/(?:v1|files)(?:[/?]|$)/u.test(request.url)) return { origin: false };
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
