/**
 * A client on a WebSocket. Messages are handled one after the other, and no more are read meanwhile. Sending waits for
 * a client that does not read. Pings keep a quiet connection open through proxies and detect a peer that is gone.
 */
import { ERRORS, type ErrorCode } from '@coppice/contract';
import fastifyWebSocket, { type WebSocket } from '@fastify/websocket';
import type { FastifyRequest } from 'fastify';
import type { ClientMessage } from '../../streams/client-message.ts';
import type { App } from '../app.ts';
import { logError, toAppError } from '../answers/error-mapper.ts';

/** Limit of one message. Clients split input into far smaller messages. */
const MAX_MESSAGE_BYTES = 1 << 20;
const PING_INTERVAL_MS = 20_000;
const STALL_DEADLINE_MS = 15 * 60_000;
/** Below this buffered size, a message counts as sent although the kernel has yet to take it. */
const HIGH_WATER_BYTES = 256 << 10;
const MAX_REASON_BYTES = 123;

/** Close codes of https://www.rfc-editor.org/rfc/rfc6455#section-7.4.1 and of the registry that it founded. */
export const CLOSE = {
  normal: 1000,
  policy: 1008,
  internal: 1011,
  serviceRestart: 1012,
  tryAgainLater: 1013,
} as const;

/** Returns the close code of an error: it tells which side is at fault, and whether a retry helps. */
export function closeCodeOf(code: ErrorCode): number {
  const { status, retryable } = ERRORS[code];
  if (code === 'unavailable') return CLOSE.serviceRestart;
  if (status >= 500) return CLOSE.internal;
  return retryable ? CLOSE.tryAgainLater : CLOSE.policy;
}

export async function addWebSockets(app: App): Promise<void> {
  await app.register(fastifyWebSocket, {
    options: { maxPayload: MAX_MESSAGE_BYTES, perMessageDeflate: false, clientTracking: false },
    errorHandler: handleSocketError,
  });
}

/** Frames that violate the protocol, and broken connections, are the client's fault; `ws` closes the socket. */
function handleSocketError(error: Error, socket: WebSocket, request: FastifyRequest): void {
  const code: unknown = Reflect.get(error, 'code');
  if (typeof code === 'string' && /^(?:WS_ERR_|ECONNRESET$|EPIPE$|ETIMEDOUT$)/u.test(code)) {
    request.log.debug({ err: error }, 'a WebSocket broke');
    return;
  }
  logError(toAppError(error), request);
  socket.terminate();
}

export class WebSocketPeer {
  readonly #socket: WebSocket;
  readonly #left = new AbortController();
  #isAlive = true;
  #isReading = false;
  #fault: unknown;
  #tail: Promise<void> = Promise.resolve();

  /** Messages wait until {@link receive} sets their handler. */
  constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.pause();
    const timer = setInterval(() => this.#ping(), PING_INTERVAL_MS);
    socket.on('pong', () => (this.#isAlive = true));
    socket.on('error', () => undefined);
    socket.once('close', () => {
      clearInterval(timer);
      this.#left.abort();
    });
  }

  /** Aborts when the connection is closed, by either side. */
  get left(): AbortSignal {
    return this.#left.signal;
  }

  /** The error of the first message that could not be handled, if any. */
  get fault(): unknown {
    return this.#fault;
  }

  /** Calls `handle` for one message at a time. The first error becomes `fault`, goes to `onError`, and ends this. */
  receive(handle: (message: ClientMessage) => Promise<void>, onError: (error: unknown) => void): void {
    const take = async (message: ClientMessage): Promise<void> => {
      if (this.#fault !== undefined || this.left.aborted) return;
      this.#read(false);
      try {
        await handle(message);
      } catch (error) {
        this.#fault = error;
        onError(error);
      } finally {
        this.#read(true);
      }
    };
    this.#socket.on('message', (data: Buffer, isBinary: boolean) => {
      this.#tail = this.#tail.then(() => take({ data, isBinary }));
    });
    this.#read(true);
  }

  /** Sends a message. Resolves when the client has room for more, or is gone. */
  async send(data: string | Buffer): Promise<void> {
    if (this.left.aborted) return;
    const sent = Promise.withResolvers<void>();
    this.#socket.send(data, { binary: typeof data !== 'string' }, () => sent.resolve());
    if (this.#socket.bufferedAmount < HIGH_WATER_BYTES) return;
    const timer = setTimeout(() => this.#socket.terminate(), STALL_DEADLINE_MS);
    await sent.promise;
    clearTimeout(timer);
  }

  /** Closes the socket with `reason`, cut to the size of a close frame. */
  close(code: number, reason = ''): void {
    // A paused socket would not read the client's close frame, and would stay open until it times out.
    this.#socket.resume();
    this.#socket.close(
      code,
      Buffer.from(reason).subarray(0, MAX_REASON_BYTES).toString('utf8').replace(/�+$/u, ''),
    );
  }

  #read(isReading: boolean): void {
    this.#isReading = isReading;
    if (!isReading) this.#socket.pause();
    else this.#socket.resume();
  }

  /**
   * A peer that does not read cannot send pongs, so it gets no ping. While this side does not read, it sees no pongs:
   * then the ping only checks that the connection still exists.
   */
  #ping(): void {
    if (this.#socket.bufferedAmount > 0) return;
    if (!this.#isReading) this.#isAlive = true;
    if (!this.#isAlive) {
      this.#socket.terminate();
      return;
    }
    this.#isAlive = false;
    this.#socket.ping();
  }
}
