/**
 * Routes whose request goes to a guest as it came: any method that Node's parser knows, the body untouched, the path not
 * decoded, upgrades included. They are served in their `onRequest` hook, before Fastify looks at the body, and before the
 * plugin for WebSockets takes an upgrade for its own; Fastify sees a path of fixed length in place of the real one, so
 * that its router neither decodes nor refuses what is the guest's.
 */
import { METHODS, type IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { AppError } from '@coppice/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { PreviewOrigins } from '../../ports/preview-origins.ts';
import type { Exchange } from '../../ports/forward.ts';
import type { App } from '../app.ts';

/** A tunnel request of HTTP (CONNECT) has no path; Node hands it to nobody here, and closes. */
export const PROXIED_METHODS = METHODS.filter((method) => method !== 'CONNECT');
export const PREVIEW_ROUTE = '/.well-known/coppice/preview-origin';

const PROXY_PREFIX = /^\/v1\/runs\/[^/?#]+\/proxy\/[^/?#]+/u;
const upgradeHeads = new WeakMap<IncomingMessage, Buffer>();

/** For Fastify's option `rewriteUrl`. */
export function buildRewrite(
  origins: () => PreviewOrigins | undefined,
): (request: IncomingMessage) => string {
  return ({ url = '/', headers }) => {
    if (origins()?.find(headers.host) !== undefined) return PREVIEW_ROUTE;
    return PROXY_PREFIX.exec(url)?.[0] ?? url;
  };
}

/** Below the port proxy, whose path is a route's with or without a key. */
export function isProxied({ url }: Pick<FastifyRequest, 'url'>): boolean {
  return PROXY_PREFIX.test(url);
}

/** What of the URL is the guest's, from its first slash on, as it was sent. */
export function guestPath(request: FastifyRequest): string {
  const url = request.originalUrl;
  const rest = url.slice(PROXY_PREFIX.exec(url)?.[0].length ?? 0);
  return rest.startsWith('/') ? rest : `/${rest}`;
}

/** To be called before the plugin for WebSockets adds its listener. */
export function addProxiedMethods(app: App): void {
  for (const method of PROXIED_METHODS) {
    if (!app.supportedMethods.includes(method)) app.addHttpMethod(method, { hasBody: true });
  }
  app.server.prependListener('upgrade', (request: IncomingMessage, _socket: Duplex, head: Buffer) => {
    upgradeHeads.set(request, head);
  });
}

/** What the forwarder needs of the request itself. */
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

/** What follows the hook, and is never reached. */
export async function unreachable(): Promise<never> {
  throw new AppError('internal', 'a proxied request came to its handler');
}
