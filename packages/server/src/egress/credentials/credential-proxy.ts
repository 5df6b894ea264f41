/**
 * The HTTP server that a guest's clients reach as http://169.254.169.254:8014/proxy/<service>/…, with a placeholder
 * instead of their secret. It adds the secret that the host holds and forwards allowed requests to the one host of the
 * service:
 *
 *     connection ── guest by its address ──► requests ── judged one by one ──► exchanges with services
 *                   (unknown: destroyed)
 *
 * All input is treated as hostile: heads and times are limited, a connection has one request at a time, and the proxy
 * sends only what it has judged. It does not inspect bodies: a service that repeats a secret in a body reveals it to
 * the guest.
 */
import { once } from 'node:events';
import { createServer, ServerResponse, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { SecureContext } from 'node:tls';
import type { Logger } from 'pino';
import type { Guest, GuestTable } from '../guest-table.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { answerBroken, answerTooMany } from './answer/answer-connection.ts';
import { answerError, toErrorAnswer, type ErrorAnswer } from './request/answer-error.ts';
import { block } from './service/connect-service.ts';
import { drainRequest } from './service/drain-request.ts';
import { GuestSession } from './guest-session.ts';
import { judgeRequest, type Judgement, type RequestName } from './request/judge-request.ts';
import { FaultLog } from './fault-log.ts';
import { toProxyFault } from './request/proxy-fault.ts';
import { RequestNote } from './request/request-note.ts';
import { PROXY_LIMITS, type ProxyLimits } from './request/proxy-limits.ts';
import { ServiceExchange } from './service/service-exchange.ts';
import { wantsWebSocket } from './request/web-socket-upgrade.ts';

const MAX_HEAD_BYTES = 64 << 10;
const CHECK_INTERVAL_MS = 1_000;
const PROBE_MS = 30_000;

export interface CredentialProxyOptions {
  address: string;
  guests: GuestTable;
  upstream: Upstream;
  /** Certificate authorities that services are verified with. */
  trust: SecureContext;
  log: Logger;
  limits?: Partial<ProxyLimits>;
}

interface Incoming {
  request: IncomingMessage;
  response: ServerResponse;
  awaitsContinue?: boolean;
  upgradeHead?: Buffer;
}

/** The server described above. */
export class CredentialProxy implements AsyncDisposable {
  readonly #options: CredentialProxyOptions;
  readonly #limits: ProxyLimits;
  readonly #faults: FaultLog;
  readonly #server: Server;
  readonly #sessions = new Map<Guest, GuestSession>();
  readonly #sessionOf = new WeakMap<Socket, GuestSession>();
  /** Connections with a request whose answer is not complete. */
  readonly #busy = new WeakSet<Socket>();

  private constructor(options: CredentialProxyOptions) {
    this.#options = options;
    this.#limits = { ...PROXY_LIMITS, ...options.limits };
    this.#faults = new FaultLog(options.log);
    this.#server = this.#createServer();
  }

  static async listen(options: CredentialProxyOptions): Promise<CredentialProxy> {
    const proxy = new CredentialProxy(options);
    proxy.#server.listen(0, options.address);
    await once(proxy.#server, 'listening');
    return proxy;
  }

  /** The port, which the kernel chose. */
  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const session of this.#sessions.values()) session[Symbol.dispose]();
    this.#server.closeAllConnections();
    await closed;
  }

  #createServer(): Server {
    const { headTimeoutMs, keepAliveMs, maxConnections } = this.#limits;
    const server = createServer({
      maxHeaderSize: MAX_HEAD_BYTES,
      insecureHTTPParser: false,
      requireHostHeader: true,
      headersTimeout: headTimeoutMs,
      // A body may take any time while its bytes arrive.
      requestTimeout: 0,
      keepAliveTimeout: keepAliveMs,
      connectionsCheckingInterval: Math.min(CHECK_INTERVAL_MS, headTimeoutMs),
      keepAlive: true,
      keepAliveInitialDelay: PROBE_MS,
      noDelay: true,
      // Other upgrades are offers that the proxy ignores.
      shouldUpgradeCallback: ({ rawHeaders }) => wantsWebSocket(rawHeaders),
    });
    server.maxConnections = maxConnections;
    server.on('connection', (socket) => this.#admit(socket));
    server.on('request', (request, response) => this.#take({ request, response }));
    server.on('checkContinue', (request, response) =>
      this.#take({ request, response, awaitsContinue: true }),
    );
    server.on('upgrade', (request, _socket, upgradeHead) => this.#takeUpgrade(request, upgradeHead));
    server.on('clientError', (error, stream) => {
      const socket = stream as Socket;
      answerBroken(error, socket, this.#busy.has(socket));
    });
    return server;
  }

  #admit(socket: Socket): void {
    const { guests } = this.#options;
    const guest = guests.findByAddress(socket.remoteAddress ?? '');
    if (guest === undefined) {
      socket.destroy();
      return;
    }
    const session = this.#openSession(guest);
    if (!session.admit(socket)) {
      answerTooMany(socket);
      return;
    }
    this.#sessionOf.set(socket, session);
    socket.once('close', () => {
      session.release(socket);
      this.#closeIfEmpty(session);
    });
  }

  #openSession(guest: Guest): GuestSession {
    const known = this.#sessions.get(guest);
    if (known !== undefined) return known;
    const { guests, upstream, trust } = this.#options;
    const session = new GuestSession(guest, {
      guests,
      upstream,
      trust,
      maxConnections: this.#limits.maxConnectionsPerGuest,
    });
    this.#sessions.set(guest, session);
    return session;
  }

  #closeIfEmpty(session: GuestSession): void {
    if (!session.isEmpty) return;
    session[Symbol.dispose]();
    if (this.#sessions.get(session.guest) === session) this.#sessions.delete(session.guest);
  }

  /** Handles an upgrade. node:http no longer manages the connection, so it is closed after any answer but 101. */
  #takeUpgrade(request: IncomingMessage, upgradeHead: Buffer): void {
    const { socket } = request;
    socket.on('error', () => socket.destroy());
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    response.assignSocket(socket);
    response.once('finish', () => socket.destroySoon());
    this.#take({ request, response, upgradeHead });
  }

  #take(incoming: Incoming): void {
    const { request, response } = incoming;
    const { socket } = request;
    const session = this.#sessionOf.get(socket);
    // Current clients send no second request before the answer to the first. Accepting them could fill the memory.
    if (session === undefined || session.isOver || this.#busy.has(socket)) {
      socket.destroy();
      return;
    }
    this.#busy.add(socket);
    const free = (): void => void this.#busy.delete(socket);
    response.once('finish', free).once('close', free);
    void this.#serve(session, incoming).catch((error: unknown) => {
      this.#options.log.error({ vm: session.guest.vmId, name: nameOf(error) }, 'a request was not handled');
      socket.destroy();
    });
  }

  async #serve(session: GuestSession, incoming: Incoming): Promise<void> {
    const { request, response, awaitsContinue = false, upgradeHead } = incoming;
    const judgement = judgeRequest(request, session.guest);
    if (judgement.kind !== 'accepted') {
      await this.#refuse(session, judgement, incoming);
      return;
    }
    const exchange = new ServiceExchange({
      session,
      request,
      response,
      accepted: judgement,
      awaitsContinue,
      upgradeHead,
      limits: this.#limits,
      faults: this.#faults,
    });
    await exchange.run();
    this.#closeIfEmpty(session);
  }

  async #refuse(
    { guest }: GuestSession,
    judgement: Exclude<Judgement, { kind: 'accepted' }>,
    { request, response }: Incoming,
  ): Promise<void> {
    let { answer } = judgement;
    if (judgement.kind === 'blocked') block({ guest, ...judgement }, judgement.reason);
    else if (judgement.name !== undefined) answer = await this.#noteRefusal(guest, judgement.name, answer);
    if (response.destroyed) return;
    answerError(response, answer);
    drainRequest(request);
  }

  async #noteRefusal(guest: Guest, name: RequestName, answer: ErrorAnswer): Promise<ErrorAnswer> {
    try {
      await new RequestNote(guest, name).make(answer.status);
      return answer;
    } catch (error) {
      const fault = toProxyFault(error);
      this.#faults.tell(guest.vmId, name.service, fault);
      return toErrorAnswer(fault);
    }
  }
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : typeof error;
}
