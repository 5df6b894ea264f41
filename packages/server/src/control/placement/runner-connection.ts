/**
 * One HTTP/2 session to the runner's Unix socket, made when it is needed and made again after it is lost. Streams are
 * handed out as they are, so that a body is piped with back-pressure from the guest to the client.
 */
import http2, { type ClientHttp2Session, type ClientHttp2Stream, type IncomingHttpHeaders } from 'node:http2';
import { connect as connectSocket } from 'node:net';
import type { Readable } from 'node:stream';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { errorFromAnswer, unheard, unreachable } from './runner-error.ts';
import { TRUSTED_PEER } from '../../lib/process/trusted-peer.ts';
import { stretched } from '../../lib/waiting/deadline.ts';

const CONNECT_DEADLINE_MS = 5_000;
const STREAM_WINDOW_BYTES = 256 << 10;
/** As wide as it goes: a stream that nobody reads must not hold up the others. */
const SESSION_WINDOW_BYTES = 2 ** 31 - 1;

export interface RunnerRequest {
  method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  path: string;
  headers?: Record<string, string>;
  /**
   * Sent as it comes; when it breaks the stream is reset, so that the far end never takes a part for the whole. If it
   * breaks with an AppError, the request fails with that.
   */
  body?: Readable | Buffer | 'written by the caller';
  /** Until the answer's head is there. */
  headDeadlineMs: number;
  /** Gives the request up before its answer's head is there; its reason is the error if it is an AppError. */
  signal?: AbortSignal;
  /**
   * Doing it twice is doing it once, also for whoever asked control for it: when no answer comes it may be asked for
   * again. Default: of GET and DELETE.
   */
  isRepeatable?: boolean;
}

export interface RunnerAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  stream: ClientHttp2Stream;
}

export class RunnerConnection implements Disposable {
  readonly #socketPath: string;
  readonly #log: Logger;
  #session: Promise<ClientHttp2Session> | undefined;
  #closed = false;

  constructor(socketPath: string, log: Logger) {
    this.#socketPath = socketPath;
    this.#log = log;
  }

  /** Sends a request and waits for its answer's head. Answers of 400 and above become an AppError. */
  async request(request: RunnerRequest): Promise<RunnerAnswer> {
    const session = await this.#connected();
    const stream = startStream(session, request);
    const headers = await waitForHead(stream, request);
    const status = Number(headers[':status']);
    if (status >= 400) throw await errorFromAnswer(status, stream);
    return { status, headers, stream };
  }

  /** Ends the session with all its streams; later requests are refused. */
  [Symbol.dispose](): void {
    this.#closed = true;
    void this.#session?.then(
      (session) => session.destroy(),
      (error: unknown) => this.#log.debug({ err: error }, 'the runner was not connected'),
    );
  }

  #connected(): Promise<ClientHttp2Session> {
    if (this.#closed) return Promise.reject(new AppError('unavailable', 'the service is shutting down'));
    this.#session ??= this.#connect();
    return this.#session;
  }

  #connect(): Promise<ClientHttp2Session> {
    const { promise, resolve, reject } = Promise.withResolvers<ClientHttp2Session>();
    const session = http2.connect('http://runner', {
      createConnection: () => connectSocket(this.#socketPath),
      ...TRUSTED_PEER,
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW_BYTES },
    });
    const forget = (error?: Error) => {
      // By the time that it has closed there may be another one.
      if (this.#session === promise) this.#session = undefined;
      reject(unreachable(error));
      session.destroy();
    };
    const timer = setTimeout(
      () => forget(new Error('the connection was not made in time')),
      stretched(CONNECT_DEADLINE_MS),
    );
    session.once('connect', () => {
      clearTimeout(timer);
      if (session.destroyed) return;
      session.setLocalWindowSize(SESSION_WINDOW_BYTES);
      resolve(session);
    });
    session.once('close', () => {
      clearTimeout(timer);
      forget();
    });
    session.once('goaway', () => forget());
    session.on('error', (error) => this.#log.debug({ err: error }, 'the connection to the runner broke'));
    session.once('error', forget);
    return promise;
  }
}

function startStream(session: ClientHttp2Session, request: RunnerRequest): ClientHttp2Stream {
  const { method, path, headers = {}, body } = request;
  let stream: ClientHttp2Stream;
  try {
    stream = session.request(
      { ':method': method, ':path': path, ...headers },
      { endStream: body === undefined },
    );
  } catch (error) {
    throw unreachable(error);
  }
  // Its end is seen by whoever waits for the head or reads the body; without a listener an error ends the process.
  stream.on('error', () => undefined);
  if (Buffer.isBuffer(body)) {
    stream.end(body);
  } else if (typeof body === 'object') {
    pipeBody(body, stream);
  }
  return stream;
}

/**
 * `pipe` with an end for both sides. stream.pipeline would destroy the source, a client's request, when the far end
 * refuses early, and with it the connection on which the refusal is to be answered: here the rest is thrown away.
 * A broken body must be answered by destroy(): close() first ends the writable side, and with it the guest would take
 * the part that it has for the whole file.
 */
function pipeBody(body: Readable, stream: ClientHttp2Stream): void {
  const cancel = () => {
    const { errored } = body;
    stream.destroy(errored instanceof AppError ? errored : new Error('the body was cut off'));
  };
  if (body.destroyed && !body.readableEnded) return cancel();
  body.pipe(stream);
  body.once('error', cancel);
  body.once('close', () => {
    if (!body.readableEnded) cancel();
  });
  stream.once('close', () => {
    body.unpipe(stream);
    body.resume();
  });
}

function isRepeatable({
  method,
  isRepeatable = method === 'GET' || method === 'DELETE',
}: RunnerRequest): boolean {
  return isRepeatable;
}

/** Who did not answer: the agent in a guest, or the runner itself. */
function unanswered(request: RunnerRequest): AppError {
  const isGuest = request.path.includes('/agent/');
  const what = `the ${isGuest ? 'sandbox' : 'runner of this machine'} gave no answer within ${stretched(request.headDeadlineMs)} ms`;
  if (isRepeatable(request))
    return new AppError(isGuest ? 'guest_unreachable' : 'unavailable', `${what}; try again`);
  if (!isGuest) return unheard(what);
  return new AppError('guest_unreachable', `${what}; whether the request was carried out is not known`);
}

/** The connection, or the stream, ended when the request was under way. */
export function cutOff(request: RunnerRequest, cause: unknown): AppError {
  return isRepeatable(request)
    ? unreachable(cause)
    : unheard('the connection to the runner of this machine broke', cause);
}

/** https://www.rfc-editor.org/rfc/rfc9113#section-8.7: nothing of the request was looked at. */
function isRefused({ rstCode }: ClientHttp2Stream): boolean {
  return rstCode === http2.constants.NGHTTP2_REFUSED_STREAM;
}

function waitForHead(stream: ClientHttp2Stream, request: RunnerRequest): Promise<IncomingHttpHeaders> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingHttpHeaders>();
  const { signal, headDeadlineMs } = request;
  const give = (error: AppError) => {
    reject(error);
    stream.destroy(error);
  };
  const abort = () => {
    const reason: unknown = signal?.reason;
    give(reason instanceof AppError ? reason : new AppError('unavailable', 'the request was given up'));
  };
  const timer = setTimeout(() => give(unanswered(request)), stretched(headDeadlineMs));
  stream.once('response', resolve);
  stream.once('error', (error) => reject(isRefused(stream) ? unreachable(error) : cutOff(request, error)));
  stream.once('close', () =>
    reject(cutOff(request, new Error(`the stream ended with code ${stream.rstCode}`))),
  );
  if (signal?.aborted === true) abort();
  signal?.addEventListener('abort', abort, { once: true });
  return promise.finally(() => {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
  });
}
