/**
 * Protects `/account` against cross-site requests. A browser sends the cookie whichever page makes the request, so only
 * pages of this service's own origin, as their visitor's browser sees it, may make requests that change something.
 */
import { AppError } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS']);
const BODY_METHODS = new Set(['POST', 'PUT', 'PATCH']);

/** Throws `forbidden_origin` for a change that a page of another or an unknown origin requests. */
export function assertOwnOrigin(request: FastifyRequest): void {
  if (SAFE_METHODS.has(request.method)) return;
  const { origin } = request.headers;
  const own = request.ownOrigin;
  if (origin === undefined)
    throw new AppError('forbidden_origin', `Origin: is missing; send it as browsers do, here "${own}"`);
  if (URL.canParse(origin) && URL.canParse(own) && new URL(origin).origin === new URL(own).origin) return;
  throw new AppError(
    'forbidden_origin',
    `Origin: is "${origin.slice(0, 200)}", but this service is "${own}"; list a proxy in front of it in COPPICE_TRUSTED_PROXIES`,
  );
}

/** Throws `invalid_request` for a body of another type than JSON, which no form of a page can send. */
export function assertJson({ method, headers }: FastifyRequest): void {
  if (!BODY_METHODS.has(method) || /^application\/json\s*(?:;|$)/iu.test(headers['content-type'] ?? ''))
    return;
  throw new AppError('invalid_request', 'Content-Type: must be application/json');
}
