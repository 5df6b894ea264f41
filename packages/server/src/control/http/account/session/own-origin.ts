/**
 * Which origin pages of this service have, as their visitor's browser sees it. A cookie comes along whoever's page asks, so
 * what changes something is asked by a page of this origin or by none.
 */
import { AppError } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS']);
const BODY_METHODS = new Set(['POST', 'PUT', 'PATCH']);

/** Throws `forbidden_origin` for a change that a page of another origin asks for, or nobody knows who. */
export function assertOwnOrigin(request: FastifyRequest): void {
  if (SAFE_METHODS.has(request.method)) return;
  const { origin } = request.headers;
  const own = request.ownOrigin;
  if (origin === undefined)
    throw new AppError('forbidden_origin', `Origin: is missing; send it as browsers do, here "${own}"`);
  if (URL.canParse(origin) && URL.canParse(own) && new URL(origin).origin === new URL(own).origin) return;
  throw new AppError(
    'forbidden_origin',
    `Origin: is "${origin.slice(0, 200)}", this service is "${own}"; name a proxy in COPPICE_TRUSTED_PROXIES if it is between`,
  );
}

/** No form of a page can send it, whatever its origin. */
export function assertJson({ method, headers }: FastifyRequest): void {
  if (!BODY_METHODS.has(method) || /^application\/json\s*(?:;|$)/iu.test(headers['content-type'] ?? ''))
    return;
  throw new AppError('invalid_request', 'Content-Type: must be application/json');
}
