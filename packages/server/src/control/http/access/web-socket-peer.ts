/**
 * A client on a WebSocket. Messages are handled one after the other, and no more are read meanwhile; what is sent waits for
 * a client that does not read. Pings keep a quiet connection open through proxies and find a peer that is gone.
 */
import { ERRORS, type ErrorCode } from '@coppice/contract';
import fastifyWebSocket, { type WebSocket } from '@fastify/websocket';
import type { FastifyRequest } from 'fastify';
import type { ClientMessage } from '../../streams/client-message.ts';
import type { App } from '../app.ts';
import { logError, toAppError } from '../answers/error-mapper.ts';

/** Of one message; input is split by clients long before that. */
export const MAX_MESSAGE_BYTES = 1 << 20;
const PING_INTERVAL_MS = 20_000;
const STALL_DEADLINE_MS = 15 * 60_000;
/** Below it, a message is taken as sent although the kernel has yet to take it. */
const HIGH_WATER_BYTES = 256 << 10;
const MAX_REASON_BYTES = 123;

/** https://www.rfc-editor.org/rfc/rfc6455#section-7.4.1 and the registry that it founded. */
export const CLOSE = {
  normal: 1000,
  policy: 1008,
  internal: 1011,
  serviceRestart: 1012,
  tryAgainLater: 1013,
} as const;

/** Whose fault it was, in the language of close codes. */
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

/** Frames that break the protocol, and connections that break, are the client's; `ws` closes them with the code that fits. */
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

  /** Messages wait until {@link receive} says what is to be done with them. */
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

  /** Aborted when the connection is closed, by whomever. */
  get left(): AbortSignal {
    return this.#left.signal;
  }

  /** Why a message of the client could not be used, if one could not. */
  get fault(): unknown {
    return this.#fault;
  }

  /** `handle` is called for one message at a time; its failure is the `fault`, goes to `onError`, and ends the reading. */
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

  /** Resolves when the client has room for more, or is gone. */
  async send(data: string | Buffer): Promise<void> {
    if (this.left.aborted) return;
    const sent = Promise.withResolvers<void>();
    this.#socket.send(data, { binary: typeof data !== 'string' }, () => sent.resolve());
    if (this.#socket.bufferedAmount < HIGH_WATER_BYTES) return;
    const timer = setTimeout(() => this.#socket.terminate(), STALL_DEADLINE_MS);
    await sent.promise;
    clearTimeout(timer);
  }

  /** Says why, cut to what a close frame holds. */
  close(code: number, reason = ''): void {
    // Or the client's answer to it would not be read, and the connection stay until it times out.
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
   * Of a peer that does not read its pongs cannot come, and while nothing is read here none is seen: then the ping only
   * finds out whether the connection still is one.
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
