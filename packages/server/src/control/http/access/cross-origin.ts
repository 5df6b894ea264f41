/**
 * Which pages of other origins may use the API. Below `/v1` only a key counts, which the page itself has to send, so by
 * default pages of any origin may; browsers are never told that they may send cookies. `/account`, where cookies count,
 * and origins of previews, where one does, stay closed.
 *
 * The port proxy is below `/v1`, too: there the service answers preflights, which carry no key, and speaks for its origin
 * in place of the guest.
 */
import cors, { type FastifyCorsOptions } from '@fastify/cors';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { App } from '../app.ts';
import { isProxied } from './proxied-route.ts';
import { toHeaders } from '../answers/raw-answer.ts';

/** What a page may read of an answer beside what every page may. */
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
/** No browser remembers a preflight for longer. */
const MAX_AGE_S = 7200;

/** `origins`: as browsers send them; `*` is any. */
export async function addCrossOrigin(app: App, origins: readonly string[]): Promise<void> {
  await app.register(cors, {
    delegator: (request, done) => done(null, buildOptions(request, origins)),
  });
}

function buildOptions(request: FastifyRequest, origins: readonly string[]): FastifyCorsOptions {
  if (origins.length === 0 || !/^\/v1(?:[/?]|$)/u.test(request.url)) return { origin: false };
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

/** One with a key is no browser's: below the port proxy it is for the guest, like any other method. */
function isPreflight({ method, headers }: FastifyRequest): boolean {
  return (
    method === 'OPTIONS' &&
    headers.origin !== undefined &&
    headers['access-control-request-method'] !== undefined &&
    headers.authorization === undefined
  );
}

/** What an answer that is passed on says of other origins: names and values in turn. */
export function listCrossOriginFields(reply: FastifyReply): string[] {
  return Object.entries(toHeaders(reply))
    .filter(([name]) => name === 'vary' || name.startsWith('access-control-'))
    .flatMap(([name, value]) => [name, String(value)]);
}
