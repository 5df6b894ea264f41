/** The runner's side of docs/reference/runner-protocol.md. Only control, on the same machine, can connect. */
import { chmodSync, rmSync } from 'node:fs';
import http2 from 'node:http2';
import net from 'node:net';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { z, ZodError } from 'zod';
import { explainFullDisk } from '../host/full-disk.ts';
import { TRUSTED_PEER } from '../../lib/process/trusted-peer.ts';
import { respondError } from './exchange.ts';
import { findSpan } from '../../lib/tracing/tracing.ts';
import { nameRequest, traceAnswer } from './trace-request.ts';
import { findRoute, type RouteParts } from './routes.ts';
import { WillingSocket } from './willing-socket.ts';

const STREAM_WINDOW_BYTES = 1 << 20;
/** High, because the number of shells and proxied connections is not limited. */
const MAX_STREAMS = 100_000;
export interface RunnerServerParts extends RouteParts {
  log: Logger;
}

export class RunnerServer {
  readonly #parts: RunnerServerParts;
  readonly #server = http2.createServer({
    ...TRUSTED_PEER,
    settings: {
      initialWindowSize: STREAM_WINDOW_BYTES,
      maxConcurrentStreams: MAX_STREAMS,
      maxHeaderListSize: 65_536,
    },
  });
  readonly #listener = net.createServer((socket) => {
    this.#server.emit('connection', new WillingSocket(socket));
  });
  readonly #sessions = new Set<http2.ServerHttp2Session>();

  private constructor(parts: RunnerServerParts) {
    this.#parts = parts;
    this.#server.on('session', (session) => {
      this.#sessions.add(session);
      session.setLocalWindowSize(1 << 30);
      session.on('close', () => this.#sessions.delete(session));
      session.on('error', (error) => parts.log.debug({ err: error }, 'control connection failed'));
    });
    this.#server.on('stream', (stream, headers) => this.#onStream(stream, headers));
  }

  static async listen(parts: RunnerServerParts, socketPath: string): Promise<RunnerServer> {
    const runner = new RunnerServer(parts);
    rmSync(socketPath, { force: true });
    const listening = Promise.withResolvers<undefined>();
    runner.#listener.once('error', (error) => listening.reject(error));
    runner.#listener.listen(socketPath, () => listening.resolve(undefined));
    await listening.promise;
    chmodSync(socketPath, 0o600);
    return runner;
  }

  async close(): Promise<void> {
    const closed = Promise.withResolvers<undefined>();
    this.#listener.close(() => closed.resolve(undefined));
    for (const session of this.#sessions) session.destroy();
    await closed.promise;
  }

  #onStream(stream: http2.ServerHttp2Stream, headers: http2.IncomingHttpHeaders): void {
    stream.on('error', (error) => this.#parts.log.debug({ err: error }, 'stream of control failed'));
    const path = headers[':path'] ?? '/';
    void traceAnswer(stream, headers, () => this.#answer(stream, headers, path));
  }

  async #answer(
    stream: http2.ServerHttp2Stream,
    headers: http2.IncomingHttpHeaders,
    path: string,
  ): Promise<void> {
    try {
      await this.#serve(stream, headers, path);
    } catch (error) {
      const told = this.#toAppError(error, path);
      findSpan()?.fail(told);
      respondError(stream, told);
    }
  }

  async #serve(
    stream: http2.ServerHttp2Stream,
    headers: http2.IncomingHttpHeaders,
    path: string,
  ): Promise<void> {
    if (!URL.canParse(path, 'http://runner'))
      throw new AppError('invalid_request', 'the path cannot be parsed');
    const url = new URL(path, 'http://runner');
    const method = headers[':method'] ?? 'GET';
    const { handle, pattern, parameters } = findRoute(method, url.pathname);
    const { agentRoute } = parameters;
    nameRequest(method, { pattern, vm: parameters.parameters['vm'], agentRoute });
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
