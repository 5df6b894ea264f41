/**
 * The listener of control for runners and other controls, not for users: TLS with a certificate of the installation's
 * authority. A runner that joins has no certificate of it, so the handshake asks for one and does not require it; each route
 * says what it requires.
 */
import { once } from 'node:events';
import { createServer, type Server } from 'node:https';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { z } from 'zod';
import { JoinRequest, type JoinAnswer } from '../../lib/protocol/join-protocol.ts';
import { listening } from '../../lib/process/listening.ts';
import { findControlPeer, toInternalContext, type Credentials } from '../../lib/tls/control-role.ts';
import { stretched } from '../../lib/waiting/deadline.ts';

const HANDSHAKE_DEADLINE_MS = 10_000;
const REQUEST_DEADLINE_MS = 30_000;
const HEADERS_DEADLINE_MS = 10_000;
/** Longer than other controls keep a connection that they do not use. */
const KEEP_ALIVE_MS = 75_000;
const MAX_BODY_BYTES = 16 << 10;
/** Of peers without a certificate; each takes a connection to the address that it names. */
const MAX_JOINS = 16;
const MAX_CONNECTIONS = 4096;
const PROBE_MS = 10_000;
/** A head of a client, with the fields that a control adds. */
const MAX_HEAD_BYTES = 32 << 10;
const RENEW_EVERY_MS = 86_400_000;

export interface InternalListenerOptions {
  /** `port` 0 takes a free one. */
  listen: { host: string; port: number };
  /** Certificate with that of the authority after it; read again every day. */
  credentials: () => Credentials;
  join: (request: JoinRequest) => Promise<JoinAnswer>;
  peers: PeerRequests;
  log: Logger;
}

/** Serves what other controls forward, after each of their connections has been marked. */
export interface PeerRequests {
  mark: (socket: Socket) => void;
  request: (request: IncomingMessage, response: ServerResponse) => void;
  upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => void;
}

export class InternalListener implements AsyncDisposable {
  readonly #options: InternalListenerOptions;
  readonly #server: Server;
  readonly #renewal: NodeJS.Timeout;
  readonly #sockets = new Set<Socket>();
  #joins = 0;

  private constructor(options: InternalListenerOptions) {
    this.#options = options;
    const { credentials, log } = options;
    this.#server = createServer(
      {
        ...toInternalContext(credentials()),
        requestCert: true,
        rejectUnauthorized: false,
        handshakeTimeout: stretched(HANDSHAKE_DEADLINE_MS),
        headersTimeout: stretched(HEADERS_DEADLINE_MS),
        maxHeaderSize: MAX_HEAD_BYTES,
        // Uploads that are forwarded are long. A join has a deadline of its own.
        requestTimeout: 0,
        keepAliveTimeout: KEEP_ALIVE_MS,
      },
      (request, response) => {
        if (this.#isPeer(request)) options.peers.request(request, response);
        else void this.#answer(request, response);
      },
    );
    this.#server.maxConnections = MAX_CONNECTIONS;
    this.#server.on('connection', (socket: Socket) => {
      socket.setKeepAlive(true, PROBE_MS);
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
    this.#server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      if (this.#isPeer(request)) options.peers.upgrade(request, socket, head);
      else socket.destroy();
    });
    this.#server.on('tlsClientError', (error) => log.debug({ err: error }, 'a handshake of a runner failed'));
    this.#renewal = setInterval(
      () => this.#server.setSecureContext(toInternalContext(credentials())),
      RENEW_EVERY_MS,
    );
    this.#renewal.unref();
  }

  static async listen(options: InternalListenerOptions): Promise<InternalListener> {
    const listener = new InternalListener(options);
    const { host, port } = options.listen;
    listener.#server.listen(port, host);
    try {
      await listening(listener.#server, 'COPPICE_INTERNAL_LISTEN');
    } catch (error) {
      clearInterval(listener.#renewal);
      throw error;
    }
    return listener;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#renewal);
    const closed = once(this.#server, 'close');
    this.#server.close();
    // Also those of upgrades, which the server has handed over.
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  /** Returns whether it comes from another control, and marks its connection. */
  #isPeer({ socket }: IncomingMessage): boolean {
    if (findControlPeer(socket as TLSSocket) === undefined) return false;
    this.#options.peers.mark(socket);
    return true;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      if (request.method !== 'POST' || request.url !== '/join')
        throw new AppError('not_found', 'there is no such route on the internal listener of control');
      respond(response, 201, await this.#join(request));
    } catch (error) {
      const told = this.#toAppError(error);
      respond(response, told.status, { error: { code: told.code, message: told.message } });
    }
  }

  async #join(request: IncomingMessage): Promise<JoinAnswer> {
    const asked = JoinRequest.parse(await readBody(request));
    if (this.#joins >= MAX_JOINS)
      throw new AppError('unavailable', 'too many runners join at the same time: try again in a minute');
    this.#joins += 1;
    try {
      return await this.#options.join(asked);
    } finally {
      this.#joins -= 1;
    }
  }

  #toAppError(error: unknown): AppError {
    const { log } = this.#options;
    if (error instanceof z.ZodError) return new AppError('invalid_request', z.prettifyError(error));
    if (error instanceof AppError) {
      log.warn({ code: error.code, err: error.cause }, `a join is refused: ${error.message}`);
      return error;
    }
    log.error({ err: error }, 'a request to the internal listener failed');
    return new AppError('internal', 'control failed; its log has the details');
  }
}

async function readBody(request: IncomingMessage): Promise<unknown> {
  const timer = setTimeout(() => request.destroy(), stretched(REQUEST_DEADLINE_MS));
  request.once('close', () => clearTimeout(timer));
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES)
      throw new AppError('payload_too_large', `the body is over ${MAX_BODY_BYTES} bytes`);
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch (error) {
    throw new AppError('invalid_request', 'the body is not JSON', { cause: error });
  }
}

function respond(response: ServerResponse, status: number, body: object): void {
  if (response.destroyed) return;
  response.writeHead(status, { 'content-type': 'application/json', connection: 'close' });
  response.end(JSON.stringify(body));
}
