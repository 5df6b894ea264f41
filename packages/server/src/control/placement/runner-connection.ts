/**
 * One HTTP/2 session to the runner, opened when needed and again after a loss. Callers get the streams themselves, so that a body is piped with back-pressure from the guest to the client.
 */
import http2, { type ClientHttp2Session, type ClientHttp2Stream, type IncomingHttpHeaders } from 'node:http2';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { z } from 'zod';
import {
  ENDLESS_HEADER,
  EPOCH_HEADER,
  PROTOCOL_HEADER,
  PROTOCOL_VERSIONS,
} from '../../lib/protocol/wire-headers.ts';
import { OpenCalls } from './open-calls.ts';
import { readBounded } from './read-stream.ts';
import { openRunnerSocket, type RunnerAddress } from './runner-address.ts';
import { errorFromAnswer, unheard, unreachable } from './runner-error.ts';
import { traceCall } from './trace-call.ts';
import { watchSession } from './watch-session.ts';
import { TRUSTED_PEER } from '../../lib/process/trusted-peer.ts';
import { stretched } from '../../lib/waiting/deadline.ts';

const CONNECT_DEADLINE_MS = 5_000;
const CALL_DEADLINE_MS = 10_000;
const MAX_BODY_BYTES = 8 << 20;
const JSON_HEADERS = { 'content-type': 'application/json' };
const STREAM_WINDOW_BYTES = 256 << 10;
/** The largest possible: a stream that is not read must not hold up the others. */
const SESSION_WINDOW_BYTES = 2 ** 31 - 1;

export interface RunnerRequest {
  method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  path: string;
  headers?: Record<string, string>;
  /**
   * Sent as it arrives. If it breaks, the stream is reset, so that the far end never takes a part for the whole. If it
   * breaks with an AppError, the request fails with that error.
   */
  body?: Readable | Buffer | 'written by the caller';
  /** Deadline for the answer's head. */
  headDeadlineMs: number;
  /** Cancels the request before the answer's head arrives. If its reason is an AppError, the request fails with it. */
  signal?: AbortSignal;
  /**
   * The request is idempotent, also for control's caller: without an answer it may be sent again. Default: true for GET
   * and DELETE.
   */
  isRepeatable?: boolean;
  /** It does not keep the runner from getting another owner, who begins it again. */
  isBackground?: boolean;
  /** The answer may have no end: a runner that stops does not wait for it. */
  isEndless?: boolean;
}

export interface RunnerAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  stream: ClientHttp2Stream;
}

export class RunnerConnection implements Disposable {
  /** Epoch of this control as the owner of the runner; undefined before it owns the runner. */
  epoch: number | undefined;
  /** The version of the protocol that both sides speak. */
  protocol = PROTOCOL_VERSIONS.newest;
  /** Without those in the background. */
  readonly openCalls = new OpenCalls();
  readonly #address: RunnerAddress;
  readonly #log: Logger;
  #session: Promise<ClientHttp2Session> | undefined;
  /** Of runners that stop, while they carry out the last requests. */
  readonly #leaving = new Set<ClientHttp2Session>();
  #closed = false;

  constructor(address: RunnerAddress, log: Logger) {
    this.#address = address;
    this.#log = log;
  }

  /** Sends a request and waits for its answer's head. Answers of 400 and above become an AppError. */
  request(request: RunnerRequest): Promise<RunnerAnswer> {
    const { method, path } = request;
    const transport = this.#address.kind === 'socket' ? 'unix' : 'tcp';
    const call = { method, path, transport, statusOf: ({ status }: RunnerAnswer) => status } as const;
    return traceCall(call, (span) => this.#request(request, span?.traceparent));
  }

  async #request(request: RunnerRequest, traceparent: string | undefined): Promise<RunnerAnswer> {
    // A runner of another machine answers only its owner. Before it is claimed it may say what it is.
    const hasEpoch = this.epoch !== undefined || request.headers?.[EPOCH_HEADER] !== undefined;
    if (this.#address.kind === 'network' && !hasEpoch && request.path !== '/status')
      throw new AppError('unavailable', 'the runner is being taken over; try again');
    const stream = await this.#startNoted(request, {
      [PROTOCOL_HEADER]: String(this.protocol),
      ...(this.epoch !== undefined && { [EPOCH_HEADER]: String(this.epoch) }),
      ...(request.isEndless === true && { [ENDLESS_HEADER]: '1' }),
      ...(traceparent !== undefined && { traceparent }),
    });
    const headers = await waitForHead(stream, request);
    const status = Number(headers[':status']);
    if (status >= 400) throw await errorFromAnswer(status, stream);
    return { status, headers, stream };
  }

  async #startNoted(request: RunnerRequest, added: Record<string, string>): Promise<ClientHttp2Stream> {
    const end = request.isBackground === true ? () => undefined : this.openCalls.begin();
    try {
      return startStream(await this.#connected(), request, added).once('close', end);
    } catch (error) {
      end();
      throw error;
    }
  }

  /** Returns an answer that is one JSON value. */
  async callJson<T>(request: RunnerRequest, schema: z.ZodType<T>): Promise<T> {
    const text = (await this.callBytes(request)).toString('utf8');
    // A runner that stops ends its streams without an error. A part of an object is no valid JSON.
    if (!isJson(text))
      throw cutOff(request, new Error(`the answer of the runner ends after ${text.length} characters`));
    return parseRunnerJson(text, schema);
  }

  /** Returns the body of an answer. Throws the error of a lost connection if the body is cut off or late. */
  async callBytes(request: RunnerRequest): Promise<Buffer> {
    const { stream } = await this.request(request);
    try {
      return await readBounded(stream, { maxBytes: MAX_BODY_BYTES, deadlineMs: CALL_DEADLINE_MS });
    } catch (error) {
      throw cutOff(request, new Error('the answer of the runner was cut off', { cause: error }));
    }
  }

  /** Ends the session with all its streams; later requests are refused. */
  [Symbol.dispose](): void {
    this.#closed = true;
    for (const session of this.#leaving) session.destroy();
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
    const attempt = new AbortController();
    let session: ClientHttp2Session | undefined;
    const forget = (error?: unknown) => {
      clearTimeout(timer);
      // There may be another session by the time this one has closed.
      if (this.#session === promise) this.#session = undefined;
      reject(unreachable(error));
      attempt.abort();
      session?.destroy();
    };
    const leave = (opened: ClientHttp2Session) => {
      if (this.#session === promise) this.#session = undefined;
      this.#leaving.add(opened);
      opened.once('close', () => this.#leaving.delete(opened));
    };
    const timer = setTimeout(
      () => forget(new Error('the connection was not made in time')),
      stretched(CONNECT_DEADLINE_MS),
    );
    openRunnerSocket(this.#address, attempt.signal).then((socket) => {
      if (attempt.signal.aborted) return socket.destroy();
      session = this.#openSession(socket, { forget, leave });
      const opened = session;
      opened.once('connect', () => {
        clearTimeout(timer);
        if (opened.destroyed) return;
        opened.setLocalWindowSize(SESSION_WINDOW_BYTES);
        resolve(opened);
      });
      return undefined;
    }, forget);
    return promise;
  }

  /** Calls `leave` when the runner stops and gets no more requests, and `forget` when all are over. */
  #openSession(
    socket: Socket,
    { forget, leave }: { forget: (error?: unknown) => void; leave: (session: ClientHttp2Session) => void },
  ): ClientHttp2Session {
    const session = http2.connect('http://runner', {
      createConnection: () => socket,
      ...TRUSTED_PEER,
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW_BYTES },
    });
    session.once('close', () => forget());
    session.once('goaway', (code: number) =>
      code === http2.constants.NGHTTP2_NO_ERROR ? leave(session) : forget(),
    );
    session.on('error', (error) => this.#log.debug({ err: error }, 'the connection to the runner broke'));
    session.once('error', forget);
    if (this.#address.kind === 'network') watchSession(session, this.#address.pingEveryMs);
    return session;
  }
}

export function get(path: string): RunnerRequest {
  return { method: 'GET', path, headDeadlineMs: CALL_DEADLINE_MS };
}

export function send(
  method: 'PUT' | 'POST',
  path: string,
  body: object,
  headDeadlineMs: number = CALL_DEADLINE_MS,
): RunnerRequest {
  return { method, path, headers: JSON_HEADERS, body: Buffer.from(JSON.stringify(body)), headDeadlineMs };
}

export function vmPath(id: string): string {
  return `/vms/${encodeURIComponent(id)}`;
}

export function parseRunnerJson<T>(text: string, schema: z.ZodType<T>): T {
  try {
    return schema.parse(JSON.parse(text));
  } catch (error) {
    throw new AppError('internal', 'the runner violated its protocol', { cause: error });
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function startStream(
  session: ClientHttp2Session,
  request: RunnerRequest,
  added: Record<string, string>,
): ClientHttp2Stream {
  const { method, path, headers = {}, body } = request;
  let stream: ClientHttp2Stream;
  try {
    stream = session.request(
      { ':method': method, ':path': path, ...headers, ...added },
      { endStream: body === undefined },
    );
  } catch (error) {
    throw unreachable(error);
  }
  // The wait for the head or the reader of the body sees the end. Without a listener an error ends the process.
  stream.on('error', () => undefined);
  if (Buffer.isBuffer(body)) {
    stream.end(body);
  } else if (typeof body === 'object') {
    pipeBody(body, stream);
  }
  return stream;
}

/**
 * Pipes, and handles the end of both sides. When the far end refuses early, stream.pipeline would destroy the source, a
 * client's request, and with it the connection on which the refusal must be sent. This function discards the rest
 * instead. A broken body needs destroy(): close() ends the writable side first, so the guest would take the part that
 * it has for the whole file.
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

/** Builds the error for a missing answer, of the agent in a guest or of the runner itself. */
function unanswered(request: RunnerRequest): AppError {
  const isGuest = request.path.includes('/agent/');
  const what = `the ${isGuest ? 'sandbox' : 'runner of this machine'} gave no answer within ${stretched(request.headDeadlineMs)} ms`;
  if (isRepeatable(request))
    return new AppError(isGuest ? 'guest_unreachable' : 'unavailable', `${what}; try again`);
  if (!isGuest) return unheard(what);
  return new AppError('guest_unreachable', `${what}; whether the request was carried out is not known`);
}

/** Builds the error for a connection or stream that ended while the request was under way. */
function cutOff(request: RunnerRequest, cause: unknown): AppError {
  return isRepeatable(request)
    ? unreachable(cause)
    : unheard('the connection to the runner of this machine broke', cause);
}

/** Returns whether the runner has not processed the request: https://www.rfc-editor.org/rfc/rfc9113#section-8.7. */
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
