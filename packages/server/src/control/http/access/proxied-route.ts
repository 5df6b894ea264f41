/**
 * Routes that forward a request to a guest unchanged: any method that Node's parser knows, the body untouched, the path
 * not decoded, upgrades included. Their `onRequest` hook serves them, before Fastify looks at the body, and before the
 * WebSocket plugin takes an upgrade for its own. Fastify sees a path of fixed length in place of the real one, so that
 * its router neither decodes nor refuses the guest's part.
 */
import { METHODS, type IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { AppError } from '@coppice/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { PreviewOrigins } from '../../ports/preview-origins.ts';
import type { Exchange } from '../../ports/forward.ts';
import type { App } from '../app.ts';

/** Without CONNECT, whose requests have no path: no handler receives them here, and Node closes the connection. */
export const PROXIED_METHODS = METHODS.filter((method) => method !== 'CONNECT');
export const PREVIEW_ROUTE = '/.well-known/coppice/preview-origin';

const PROXY_PREFIX = /^\/v1\/runs\/[^/?#]+\/proxy\/[^/?#]+/u;
const upgradeHeads = new WeakMap<IncomingMessage, Buffer>();

/** Builds Fastify's option `rewriteUrl`. */
export function buildRewrite(
  origins: () => PreviewOrigins | undefined,
): (request: IncomingMessage) => string {
  return ({ url = '/', headers }) => {
    if (origins()?.find(headers.host) !== undefined) return PREVIEW_ROUTE;
    return PROXY_PREFIX.exec(url)?.[0] ?? url;
  };
}

/** Whether a request is below the port proxy, with or without a key. */
export function isProxied({ url }: Pick<FastifyRequest, 'url'>): boolean {
  return PROXY_PREFIX.test(url);
}

/** Returns the guest's part of the URL, from its first slash, as the client sent it. */
export function guestPath(request: FastifyRequest): string {
  const url = request.originalUrl;
  const rest = url.slice(PROXY_PREFIX.exec(url)?.[0].length ?? 0);
  return rest.startsWith('/') ? rest : `/${rest}`;
}

/** Adds the methods that Fastify lacks. Call before the WebSocket plugin adds its listener. */
export function addProxiedMethods(app: App): void {
  for (const method of PROXIED_METHODS) {
    if (!app.supportedMethods.includes(method)) app.addHttpMethod(method, { hasBody: true });
  }
  app.server.prependListener('upgrade', (request: IncomingMessage, _socket: Duplex, head: Buffer) => {
    upgradeHeads.set(request, head);
  });
}

/** Returns the parts of an exchange that come from the request itself. */
export function toExchange(
  request: FastifyRequest,
  reply: FastifyReply,
): Pick<Exchange, 'request' | 'response' | 'clientAddress' | 'upgradeHead'> {
  return {
    request: request.raw,
    response: reply.raw,
    clientAddress: request.clientAddress,
    upgradeHead: upgradeHeads.get(request.raw),
  };
}

/** Handler of routes whose hook answers. It never runs. Throws `internal`. */
export async function unreachable(): Promise<never> {
  throw new AppError('internal', 'a proxied request reached its handler');
}
