/** Exposure of the API to the network: plain or under TLS, and the proxies that are trusted to report the client. */
import type { IncomingHttpHeaders } from 'node:http';
import { createServer, type Server } from 'node:https';
import { toSecureContext, type TlsPair } from '../../../lib/tls/tls-pair.ts';
import type { App } from '../app.ts';
import { CLIENT_ADDRESS, OWN_ORIGIN, readPeerHeader } from '../requests/forwarded-request.ts';
import { buildClientAddress, buildIsProxy } from '../requests/client-address.ts';

export interface Exposure {
  /** Without it the API is plain HTTP. */
  tls?: TlsPair | undefined;
  /** `max-age` of Strict-Transport-Security; 0 sends none. */
  hstsSeconds: number;
  /** Addresses and ranges of proxies whose X-Forwarded-* headers are trusted. */
  trustedProxies: readonly string[];
  /** Origins whose pages may use the API, `*` for any. */
  corsOrigins: readonly string[];
}

const HANDSHAKE_DEADLINE_MS = 10_000;

export interface TlsServerOptions {
  pair: TlsPair;
  headersTimeoutMs: number;
  keepAliveTimeoutMs: number;
}

/** The listening sockets of the API under TLS; their certificate can be changed while they serve. */
export class TlsServers {
  readonly #servers: Server[] = [];
  readonly #options: TlsServerOptions;

  constructor(options: TlsServerOptions) {
    this.#options = options;
  }

  /** For Fastify's `serverFactory`. */
  readonly create = (handler: Parameters<typeof createServer>[1]): Server => {
    const { pair, headersTimeoutMs, keepAliveTimeoutMs } = this.#options;
    const server = createServer(
      {
        ...toSecureContext(pair),
        handshakeTimeout: HANDSHAKE_DEADLINE_MS,
        headersTimeout: headersTimeoutMs,
        keepAliveTimeout: keepAliveTimeoutMs,
        requestTimeout: 0,
      },
      handler,
    );
    this.#servers.push(server);
    return server;
  };

  /** New connections get this pair, open ones keep theirs. */
  setPair(pair: TlsPair): void {
    for (const server of this.#servers) server.setSecureContext(toSecureContext(pair));
  }
}

/** Adds the first of all hooks: later ones need its values for logs and answers. */
export function addExposure(
  app: App,
  { tls, hstsSeconds, trustedProxies }: Omit<Exposure, 'corsOrigins'>,
): void {
  const findClientAddress = buildClientAddress(trustedProxies);
  const isProxy = buildIsProxy(trustedProxies);
  const hasHsts = tls !== undefined && hstsSeconds > 0;
  app.decorateRequest('clientAddress', '');
  app.decorateRequest('ownOrigin', '');
  app.addHook('onRequest', async (request, reply) => {
    const { socket, headers } = request.raw;
    request.clientAddress =
      readPeerHeader(request.raw, CLIENT_ADDRESS) ??
      findClientAddress(socket.remoteAddress ?? '', readHeader(headers['x-forwarded-for']));
    const isBehindProxy = isProxy(socket.remoteAddress ?? '');
    request.ownOrigin =
      readPeerHeader(request.raw, OWN_ORIGIN) ??
      findOwnOrigin(headers, { isOverTls: tls !== undefined, isBehindProxy });
    if (hasHsts) reply.header('strict-transport-security', `max-age=${hstsSeconds}`);
  });
}

interface Connection {
  isOverTls: boolean;
  isBehindProxy: boolean;
}

/** A proxy may end TLS, and may send another host than it received. Only a trusted proxy's headers about that count. */
function findOwnOrigin(headers: IncomingHttpHeaders, { isOverTls, isBehindProxy }: Connection): string {
  const told = (name: 'x-forwarded-proto' | 'x-forwarded-host'): string | undefined =>
    isBehindProxy ? readHeader(headers[name])?.split(',').at(-1)?.trim() : undefined;
  const scheme = told('x-forwarded-proto') ?? (isOverTls ? 'https' : 'http');
  return `${scheme === 'https' ? 'https' : 'http'}://${told('x-forwarded-host') ?? headers.host ?? ''}`;
}

/** Joins repeated headers to one list. */
function readHeader(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value.join(',') : value;
}
