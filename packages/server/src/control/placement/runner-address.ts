/** Where a runner is, and the connection to it: the Unix socket of this machine, or TLS to another one. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { fingerprintOf, toInternalContext, type Credentials } from '../../lib/tls/control-role.ts';

interface NetworkAddress {
  kind: 'network';
  host: string;
  port: number;
  /** Pinned: SHA-256 of the runner's certificate in lower-case hexadecimal digits. */
  fingerprint: string;
  /** Returns what this control proves itself with; called for each connection. */
  credentials: () => Credentials;
  /** How often it is checked that the runner still answers. */
  pingEveryMs?: number;
}

export type RunnerAddress = { kind: 'socket'; path: string } | NetworkAddress;

/** The peer is not the runner that joined with this address. */
export class OtherRunnerError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'OtherRunnerError';
  }
}

/** Connects. Nothing is sent to a peer without the pinned certificate: rejects with {@link OtherRunnerError}. */
export function openRunnerSocket(address: RunnerAddress, signal: AbortSignal): Promise<Socket> {
  return address.kind === 'socket' ? openLocal(address.path, signal) : openNetwork(address, signal);
}

async function openLocal(path: string, signal: AbortSignal): Promise<Socket> {
  const socket = connect(path);
  try {
    await once(socket, 'connect', { signal });
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

async function openNetwork(
  { host, port, fingerprint, credentials }: NetworkAddress,
  signal: AbortSignal,
): Promise<Socket> {
  const socket = connectTls({
    host,
    port,
    ...toInternalContext(credentials()),
    ALPNProtocols: ['h2'],
    // Runners sign their certificates themselves. The fingerprint is compared instead.
    rejectUnauthorized: false,
  });
  // An error after the wait reaches the HTTP/2 session.
  socket.on('error', () => undefined);
  try {
    await once(socket, 'secureConnect', { signal });
    const peer = socket.getPeerX509Certificate();
    if (peer === undefined || fingerprintOf(peer) !== fingerprint)
      throw new OtherRunnerError(`${host}:${port} presents another key than the runner that joined with it`);
    if (socket.alpnProtocol !== 'h2') throw new OtherRunnerError(`${host}:${port} does not speak HTTP/2`);
    socket.setNoDelay(true);
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}
