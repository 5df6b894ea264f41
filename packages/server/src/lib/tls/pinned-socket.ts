/**
 * A connection of this service to itself. Its certificate is made out to the name that clients use, by an authority that
 * this machine may not know: that it is the very one which is served is all that counts here.
 */
import { once } from 'node:events';
import { connect, type TLSSocket } from 'node:tls';
import { serverCertificate, type TlsPair } from './tls-pair.ts';

/** Rejects, before anything is sent, when something else answers at `address`. */
export async function connectPinned(address: URL, pair: TlsPair, timeoutMs: number): Promise<TLSSocket> {
  const host = address.hostname.replace(/^\[|\]$/gu, '');
  const socket = connect({ host, port: Number(address.port || 443), rejectUnauthorized: false });
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    await once(socket, 'secureConnect', { signal });
    const peer = socket.getPeerX509Certificate();
    if (peer?.raw.equals(serverCertificate(pair).raw) === true) return socket;
    throw new Error(`${address.host} answers with another certificate than the one that is configured`);
  } catch (error) {
    socket.destroy();
    throw error;
  }
}
