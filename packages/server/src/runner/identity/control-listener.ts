/** Accepts connections of controls over TLS, and of no other peer: their certificates come from the stored authority. */
import type { AddressInfo, Socket } from 'node:net';
import { createServer, type TLSSocket } from 'node:tls';
import type { Logger } from 'pino';
import { findControlPeer, toInternalContext, type Credentials } from '../../lib/tls/control-role.ts';
import { listening } from '../../lib/process/listening.ts';
import { stretched } from '../../lib/waiting/deadline.ts';

const PROBE_MS = 10_000;
const HANDSHAKE_DEADLINE_MS = 10_000;

export interface ControlListenerOptions {
  /** `port` 0 takes a free one. */
  listen: { host: string; port: number };
  credentials: Credentials;
  /** Gets each connection of a control. */
  onSocket: (socket: TLSSocket) => void;
  log: Logger;
}

export interface ControlListener extends AsyncDisposable {
  port: number;
  /** Accepts no more connections. Those that are open stay until this is disposed. */
  refuse: () => void;
}

export async function listenForControls(options: ControlListenerOptions): Promise<ControlListener> {
  const { listen, credentials, onSocket, log } = options;
  const sockets = new Set<Socket>();
  const server = createServer(
    {
      ...toInternalContext(credentials),
      requestCert: true,
      rejectUnauthorized: true,
      ALPNProtocols: ['h2'],
      handshakeTimeout: stretched(HANDSHAKE_DEADLINE_MS),
    },
    (socket) => {
      socket.on('error', (error) => log.debug({ err: error }, 'a connection of control broke'));
      if (findControlPeer(socket) !== undefined) return onSocket(socket);
      log.warn({ remote: socket.remoteAddress }, 'a peer whose certificate is that of no control is refused');
      socket.destroy();
    },
  );
  server.on('tlsClientError', (error, { remoteAddress }) =>
    log.debug({ err: error, remote: remoteAddress }, 'a peer that is no control is refused'),
  );
  server.on('connection', (socket: Socket) => {
    socket.setNoDelay(true);
    // A control that vanished would hold its streams for ever.
    socket.setKeepAlive(true, PROBE_MS);
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.listen(listen.port, listen.host);
  await listening(server, 'COPPICE_RUNNER_LISTEN');
  const closed = Promise.withResolvers<void>();
  server.once('close', () => closed.resolve());
  return {
    port: (server.address() as AddressInfo).port,
    refuse: () => void server.close(),
    [Symbol.asyncDispose]: async () => {
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed.promise;
    },
  };
}
