/** A connection to a service for one guest: allowed by its policy, and to whom the certificate says that it is. */
import { once } from 'node:events';
import { connect, type SecureContext, type TLSSocket } from 'node:tls';
import { judgeResolved, type BlockReason } from '@coppice/contract';
import { stretched } from '../../../lib/waiting/deadline.ts';
import type { Guest } from '../../guest-table.ts';
import { RefusedError, UnreachableError, type Dialled, type Upstream } from '../../upstream/upstream.ts';
import { ProxyFault } from '../request/proxy-fault.ts';

/** For look-up, connection and handshake together. */
const CONNECT_TIMEOUT_MS = 15_000;
/** The one that requests are judged in. */
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
  /** To which the name was resolved, and which the policy has let pass. */
  address: string;
}

/** Throws a `ProxyFault`. */
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
  // The policy may be another one than when the name was judged.
  const verdict = judgeResolved(guest.policy, host, dialled.address);
  if (verdict.action === 'allow') return dialled;
  dialled.socket.destroy();
  throw block(route, verdict.reason, dialled.address);
}

/** Tells the audit log, too. */
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
    // Said outright, as a variable of the environment could turn the default off.
    rejectUnauthorized: true,
  });
  try {
    await once(socket, 'secureConnect', { signal });
  } catch (error) {
    destroyBoth(socket, raw);
    // Typed as an Error, it is null, or a code.
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

/** What a connection that has been given up still has to say. */
function ignore(): void {}
