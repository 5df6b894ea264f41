/**
 * A TLS connection of this service to itself. The certificate is for the name that clients use, and from an authority
 * that this machine may not know. So the client only checks that it is the certificate that the service serves.
 */
import { once } from 'node:events';
import { connect, type TLSSocket } from 'node:tls';
import { serverCertificate, type TlsPair } from './tls-pair.ts';

/** Connects to `address`. Rejects before it sends anything if the peer presents another certificate. */
export async function connectPinned(address: URL, pair: TlsPair, timeoutMs: number): Promise<TLSSocket> {
  const host = address.hostname.replace(/^\[|\]$/gu, '');
  const socket = connect({ host, port: Number(address.port || 443), rejectUnauthorized: false });
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    await once(socket, 'secureConnect', { signal });
    const peer = socket.getPeerX509Certificate();
    if (peer?.raw.equals(serverCertificate(pair).raw) === true) return socket;
    throw new Error(`${address.host} presents another certificate than the configured one`);
  } catch (error) {
    socket.destroy();
    throw error;
  }
}
