/** Connects to a service for one guest. The guest's policy must allow it, and its certificate must be valid. */
import { once } from 'node:events';
import { connect, type SecureContext, type TLSSocket } from 'node:tls';
import { judgeResolved, type BlockReason } from '@coppice/contract';
import { stretched } from '../../../lib/waiting/deadline.ts';
import type { Guest } from '../../guest-table.ts';
import { RefusedError, UnreachableError, type Dialled, type Upstream } from '../../upstream/upstream.ts';
import { ProxyFault } from '../request/proxy-fault.ts';

/** Timeout for name resolution, connection and handshake together. */
const CONNECT_TIMEOUT_MS = 15_000;
/** The only protocol that the proxy judges requests in. */
const PROTOCOL = 'http/1.1';

export interface ServiceRoute {
  guest: Guest;
  upstream: Upstream;
  host: string;
  port: number;
  trust: SecureContext;
}

export interface ServiceConnection {
  socket: TLSSocket;
  /** The address to which the name was resolved, and which the policy allowed. */
  address: string;
}

/** Opens a TLS connection to the service. Throws a `ProxyFault`. */
export async function connectService(route: ServiceRoute, signal?: AbortSignal): Promise<ServiceConnection> {
  const timeout = AbortSignal.timeout(stretched(CONNECT_TIMEOUT_MS));
  const either = signal === undefined ? timeout : AbortSignal.any([signal, timeout]);
  try {
    const dialled = await dialJudged(route, either);
    return { socket: await secure(dialled, route, either), address: dialled.address };
  } catch (error) {
    if (error instanceof ProxyFault) throw error;
    if (timeout.aborted) throw new ProxyFault('upstream_timeout', { cause: error });
    throw new ProxyFault('upstream_unreachable', { cause: error });
  }
}

async function dialJudged(route: ServiceRoute, signal: AbortSignal): Promise<Dialled> {
  const { guest, upstream, host, port } = route;
  let dialled: Dialled;
  try {
    dialled = await upstream.dial(guest, { name: host, port }, signal);
  } catch (error) {
    if (error instanceof RefusedError) throw block(route, error.reason, error.address);
    throw error instanceof UnreachableError
      ? new ProxyFault('upstream_unreachable', { cause: error })
      : error;
  }
  // The policy may have changed since the name was judged.
  const verdict = judgeResolved(guest.policy, host, dialled.address);
  if (verdict.action === 'allow') return dialled;
  dialled.socket.destroy();
  throw block(route, verdict.reason, dialled.address);
}

/** Returns the fault for a refused destination, and records it in the counters and the audit log. */
export function block(
  { guest, host, port }: Pick<ServiceRoute, 'guest' | 'host' | 'port'>,
  reason: BlockReason,
  ip?: string,
): ProxyFault {
  guest.count('connections_blocked');
  const data = { domain: host, ...(ip === undefined ? {} : { ip }), port, reason, count: 1 };
  guest.note({ event: 'network.blocked', ts: new Date().toISOString(), data });
  return new ProxyFault('network_policy');
}

async function secure(
  { socket: raw }: Dialled,
  route: ServiceRoute,
  signal: AbortSignal,
): Promise<TLSSocket> {
  const socket = connect({
    socket: raw,
    servername: route.host,
    ALPNProtocols: [PROTOCOL],
    minVersion: 'TLSv1.2',
    secureContext: route.trust,
    // Set explicitly, because an environment variable could turn the default off.
    rejectUnauthorized: true,
  });
  try {
    await once(socket, 'secureConnect', { signal });
  } catch (error) {
    destroyBoth(socket, raw);
    // Its type is Error, but its value is null or a code.
    const isUntrusted = Boolean(socket.authorizationError);
    throw isUntrusted ? new ProxyFault('upstream_untrusted', { cause: error }) : error;
  }
  if (socket.authorized && (socket.alpnProtocol === PROTOCOL || socket.alpnProtocol === false)) return socket;
  destroyBoth(socket, raw);
  throw new ProxyFault(socket.authorized ? 'upstream_malformed' : 'upstream_untrusted');
}

function destroyBoth(socket: TLSSocket, raw: Dialled['socket']): void {
  socket.on('error', ignore);
  socket.destroy();
  raw.destroy();
}

/** Ignores errors of a closed connection. */
function ignore(): void {}
