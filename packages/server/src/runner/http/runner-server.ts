/**
 * The runner's side of docs/reference/runner-protocol.md. Control connects over a Unix socket on the same machine, or over TLS
 * from another one.
 */
import { chmodSync, rmSync } from 'node:fs';
import http2 from 'node:http2';
import net from 'node:net';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { z, ZodError } from 'zod';
import { explainFullDisk } from '../host/full-disk.ts';
import { TRUSTED_PEER } from '../../lib/process/trusted-peer.ts';
import { ENDLESS_HEADER, REFUSED_STATUS, WireRefusedError } from '../../lib/protocol/wire-headers.ts';
import {
  listenForControls,
  type ControlListener,
  type ControlListenerOptions,
} from '../identity/control-listener.ts';
import { respondError, respondJson } from './exchange.ts';
import type { Fence } from './fence.ts';
import { findSpan } from '../../lib/tracing/tracing.ts';
import { nameRequest, traceAnswer } from './trace-request.ts';
import { stretched } from '../../lib/waiting/deadline.ts';
import { findRoute, type RouteParts } from './routes.ts';
import { WillingSocket } from './willing-socket.ts';

const STREAM_WINDOW_BYTES = 1 << 20;
/** High, because the number of shells and proxied connections is not limited. */
const MAX_STREAMS = 100_000;
/** Answered to a control that cannot know the epoch, or shares no version of the protocol. */
const UNFENCED_PATH = '/status';
/** Controls of earlier versions do not say that these have no end. */
const ENDLESS_PATH = '/events';
/** For requests that are under way when the runner stops. Meanwhile new ones are refused. */
const PATIENCE_MS = 10_000;

export interface RunnerServerParts extends RouteParts {
  fence: Fence;
  log: Logger;
}

/** The places where the server listens. */
export interface RunnerSockets {
  socketPath: string;
  network?: Pick<ControlListenerOptions, 'listen' | 'credentials'>;
}

export class RunnerServer {
  readonly #parts: RunnerServerParts;
  readonly #local = this.#build({ isNetwork: false });
  readonly #remote = this.#build({ isNetwork: true });
  readonly #listener = net.createServer((socket) => {
    this.#local.emit('connection', new WillingSocket(socket));
  });
  /** In the order in which they were opened, each with the epoch of its last request. */
  readonly #sessions = new Map<http2.ServerHttp2Session, number | undefined>();
  /** Open streams of requests with an epoch. */
  readonly #epochs = new Map<http2.ServerHttp2Stream, number>();
  /** Open streams that are waited for when the runner stops. */
  readonly #awaited = new Map<http2.ServerHttp2Stream, string>();
  #noteLast: (() => void) | undefined;
  #network: ControlListener | undefined;

  private constructor(parts: RunnerServerParts) {
    this.#parts = parts;
  }

  static async listen(
    parts: RunnerServerParts,
    { socketPath, network }: RunnerSockets,
  ): Promise<RunnerServer> {
    const runner = new RunnerServer(parts);
    rmSync(socketPath, { force: true });
    const listening = Promise.withResolvers<undefined>();
    runner.#listener.once('error', (error) => listening.reject(error));
    runner.#listener.listen(socketPath, () => listening.resolve(undefined));
    await listening.promise;
    chmodSync(socketPath, 0o600);
    if (network !== undefined) await runner.#listenOnNetwork(network);
    return runner;
  }

  /** Port of the network listener; undefined without one. */
  get port(): number | undefined {
    return this.#network?.port;
  }

  /** Refuses new requests, waits a while for the ends of those that are under way, and cuts off the rest. */
  async close(patienceMs = stretched(PATIENCE_MS)): Promise<void> {
    const closed = Promise.withResolvers<undefined>();
    this.#listener.close(() => closed.resolve(undefined));
    this.#network?.refuse();
    for (const session of this.#sessions.keys()) session.close();
    if (!(await this.#drained(patienceMs)))
      this.#parts.log.warn(
        { paths: [...this.#awaited.values()] },
        'the runner stops with requests still open',
      );
    for (const session of this.#sessions.keys()) session.destroy();
    await this.#network?.[Symbol.asyncDispose]();
    await closed.promise;
  }

  /** Returns whether no request is under way, except those without an end. */
  async #drained(patienceMs: number): Promise<boolean> {
    if (this.#awaited.size === 0) return true;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#noteLast = resolve;
    const timer = setTimeout(resolve, patienceMs);
    await promise;
    clearTimeout(timer);
    return this.#awaited.size === 0;
  }

  #await(stream: http2.ServerHttp2Stream, path: string): void {
    this.#awaited.set(stream, path);
    stream.once('close', () => {
      this.#awaited.delete(stream);
      if (this.#awaited.size === 0) this.#noteLast?.();
    });
  }

  async #listenOnNetwork(network: NonNullable<RunnerSockets['network']>): Promise<void> {
    try {
      this.#network = await listenForControls({
        ...network,
        onSocket: (socket) => void this.#remote.emit('connection', new WillingSocket(socket)),
        log: this.#parts.log,
      });
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  #build(origin: { isNetwork: boolean }): http2.Http2Server {
    const server = http2.createServer({
      ...TRUSTED_PEER,
      settings: {
        initialWindowSize: STREAM_WINDOW_BYTES,
        maxConcurrentStreams: MAX_STREAMS,
        maxHeaderListSize: 65_536,
      },
    });
    server.on('session', (session) => {
      this.#sessions.set(session, undefined);
      session.setLocalWindowSize(1 << 30);
      session.on('close', () => this.#sessions.delete(session));
      session.on('error', (error) => this.#parts.log.debug({ err: error }, 'control connection failed'));
    });
    server.on('stream', (stream, headers) => this.#onStream(stream, headers, origin));
    return server;
  }

  #onStream(
    stream: http2.ServerHttp2Stream,
    headers: http2.IncomingHttpHeaders,
    origin: { isNetwork: boolean },
  ): void {
    stream.on('error', (error) => this.#parts.log.debug({ err: error }, 'stream of control failed'));
    const path = headers[':path'] ?? '/';
    if (headers[ENDLESS_HEADER] === undefined && path !== ENDLESS_PATH) this.#await(stream, path);
    void traceAnswer(stream, headers, () => this.#answer(stream, headers, { path, ...origin }));
  }

  async #answer(
    stream: http2.ServerHttp2Stream,
    headers: http2.IncomingHttpHeaders,
    { path, isNetwork }: { path: string; isNetwork: boolean },
  ): Promise<void> {
    try {
      if (path !== UNFENCED_PATH) this.#admit(stream, headers, isNetwork);
      await this.#serve(stream, headers, { path, isNetwork });
    } catch (error) {
      if (error instanceof WireRefusedError) return this.#refuse(stream, error);
      const told = this.#toAppError(error, path);
      findSpan()?.fail(told);
      respondError(stream, told);
    }
  }

  /** Ends what earlier owners of this runner have open, when a request is the first one of a new owner. */
  #admit(stream: http2.ServerHttp2Stream, headers: http2.IncomingHttpHeaders, isNetwork: boolean): void {
    const { epoch, isRaised } = this.#parts.fence.admit(headers, { isNetwork });
    if (epoch === undefined || stream.destroyed) return;
    if (isRaised) {
      this.#parts.log.info({ epoch }, 'another control owns this runner from now on');
      for (const [earlier, of] of this.#epochs) if (of < epoch) earlier.close(http2.constants.NGHTTP2_CANCEL);
    }
    this.#epochs.set(stream, epoch);
    stream.once('close', () => this.#epochs.delete(stream));
    this.#endEarlier(stream, epoch);
  }

  /**
   * A control opens another connection only when it has given up the last one, and with it each request there. The network may still
   * deliver some of these, which must not begin now.
   */
  #endEarlier({ session }: http2.ServerHttp2Stream, epoch: number): void {
    if (session === undefined) return;
    for (const [earlier, of] of this.#sessions) {
      if (earlier === session) break;
      if (of === epoch) earlier.destroy();
    }
    this.#sessions.set(session as http2.ServerHttp2Session, epoch);
  }

  #refuse(stream: http2.ServerHttp2Stream, { code, message }: WireRefusedError): void {
    this.#parts.log.warn({ code }, message);
    respondJson(stream, REFUSED_STATUS, { error: { code, message } });
  }

  async #serve(
    stream: http2.ServerHttp2Stream,
    headers: http2.IncomingHttpHeaders,
    { path, isNetwork }: { path: string; isNetwork: boolean },
  ): Promise<void> {
    if (!URL.canParse(path, 'http://runner'))
      throw new AppError('invalid_request', 'the path cannot be parsed');
    const url = new URL(path, 'http://runner');
    const method = headers[':method'] ?? 'GET';
    const { handle, pattern, parameters } = findRoute(method, url.pathname);
    const { agentRoute } = parameters;
    nameRequest(method, { pattern, vm: parameters.parameters['vm'], agentRoute, isNetwork });
    await handle(this.#parts, { stream, headers, method, url, ...parameters });
  }

  #toAppError(cause: unknown, path: string): AppError {
    const error = explainFullDisk(cause) ?? cause;
    if (error instanceof AppError) {
      if (error.cause !== undefined) this.#parts.log.warn({ err: error, path }, error.message);
      return error;
    }
    if (error instanceof ZodError) return new AppError('invalid_request', z.prettifyError(error));
    this.#parts.log.error({ err: error, path }, 'request of control failed');
    return new AppError('internal', 'the runner failed; its log has the details');
  }
}
