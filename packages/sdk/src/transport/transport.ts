/**
 * Makes the HTTP calls of the service: address, bearer header, deadline, retries, and uniform errors.
 *
 *   call ──► attempt ──► 2xx ──► body, read under the same deadline
 *              ▲  └────► 429/503 with Retry-After, or connection refused ──► wait ─┐
 *              └───────────────── idempotent requests only ────────────────────────┘
 */
import { collectBytes, collectPrefix, MAX_BUFFERED_BYTES, watchDownload } from './bytes.ts';
import type { FetchFunction, ResolvedClientOptions } from './client-options.ts';
import { Deadline } from './deadline.ts';
import {
  buildAnswerError,
  CoppiceError,
  firstBytes,
  parseErrorBody,
  readErrorFields,
  toCodes,
  type ErrorFields,
} from './errors.ts';
import { isConnectionRefused, retryDelayMs } from './retry.ts';
import type { WebSocketConstructor } from '../streams/web-socket.ts';

/** Large enough for every error body of the service. A longer body of a proxy is not read further. */
const MAX_ERROR_BODY_BYTES = 65_536;

/** Adds `duplex`, which the DOM type lacks. Node and Chrome require it for a body that is a stream. */
type StreamingRequestInit = RequestInit & { duplex?: 'half' };

/** One request to the service. */
export interface CallRequest {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Path below the base URL, with encoded segments. */
  path: string;
  /** Query with its `?`, or an empty text. */
  query?: string;
  headers?: Record<string, string>;
  body?: string | Uint8Array | Blob | ReadableStream<Uint8Array> | undefined;
  /** True if carrying out the request twice has the same effect as once. Only such a request is retried. */
  idempotent: boolean;
  /** Called before each retry. */
  onRetry?: () => void;
  signal?: AbortSignal | undefined;
  /** Timeout in milliseconds. Default: the client's `timeoutMs`. */
  timeoutMs?: number | undefined;
  /** Maximum time in milliseconds between two chunks of a streamed answer. Default: the client's `timeoutMs`. */
  stallMs?: number | undefined;
}

/** A parsed answer with its headers. */
export interface Answer<Value> {
  value: Value;
  headers: Headers;
}

/** An answer whose body is read as it arrives. */
export interface StreamedAnswer {
  status: number;
  body: ReadableStream<Uint8Array<ArrayBuffer>>;
}

/** Sends requests to one service with one API key. Failed calls throw {@link CoppiceError}. */
export class Transport {
  /** Returns the API key. A function, because the consoles of browsers show private fields. */
  readonly #getKey: () => string;
  readonly #baseUrl: string;
  readonly #fetch: FetchFunction;
  readonly #maxRetries: number;
  readonly timeoutMs: number;
  /** The client's option `WebSocket`. */
  readonly webSocket: WebSocketConstructor | undefined;

  constructor(options: ResolvedClientOptions) {
    const { apiKey } = options;
    this.#getKey = () => apiKey;
    this.#baseUrl = options.baseUrl;
    this.#fetch = options.fetch;
    this.#maxRetries = options.maxRetries;
    this.timeoutMs = options.timeoutMs;
    this.webSocket = options.WebSocket;
  }

  get baseUrl(): string {
    return this.#baseUrl;
  }

  /**
   * Sends a request and parses its JSON answer. `parse` throws `TypeError` for a value of the wrong shape, which the
   * call reports as {@link CoppiceError} with code `invalid_response`.
   */
  async callJson<Value>(request: CallRequest, parse: (value: unknown) => Value): Promise<Answer<Value>> {
    const deadline = this.#startDeadline(request);
    try {
      return await this.callJsonWithin(request, deadline, parse);
    } finally {
      deadline.end();
    }
  }

  /** Does the same as `callJson` under a deadline that the caller creates and ends. */
  async callJsonWithin<Value>(
    request: CallRequest,
    deadline: Deadline,
    parse: (value: unknown) => Value,
  ): Promise<Answer<Value>> {
    const response = await this.#send(request, deadline);
    const body = await collectBytes(response.body, MAX_BUFFERED_BYTES, (error, begun) => {
      const lateError = buildLateError(request, response, { fields: parseErrorBody(begun), body: begun });
      return (
        (deadline.signal.aborted ? undefined : lateError) ??
        buildConnectionError(request, deadline.reasonFor(error))
      );
    });
    const redact = (bytes: Uint8Array): Uint8Array => this.#redact(bytes);
    return { value: parseJsonAnswer(request, response, { body, parse, redact }), headers: response.headers };
  }

  /** Sends a request and ignores the body of its answer. */
  async callEmpty(request: CallRequest): Promise<void> {
    const deadline = this.#startDeadline(request);
    try {
      const response = await this.#send(request, deadline);
      await response.body?.cancel();
    } finally {
      deadline.end();
    }
  }

  /** Sends a request and returns the body of its answer as a stream. */
  async callStream(request: CallRequest): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
    return (await this.callStreamWithStatus(request)).body;
  }

  /** Does the same as `callStream`, and returns the status as well. */
  async callStreamWithStatus(request: CallRequest): Promise<StreamedAnswer> {
    const deadline = this.#startDeadline(request);
    try {
      const response = await this.#send(request, deadline);
      const body = watchDownload(response.body, deadline, {
        stallMs: request.stallMs ?? this.timeoutMs,
        mapError: (error) => buildConnectionError(request, deadline.reasonFor(error)),
      });
      return { status: response.status, body };
    } catch (error) {
      deadline.end();
      throw error;
    }
  }

  #startDeadline(request: CallRequest): Deadline {
    return new Deadline(labelOf(request), request.timeoutMs ?? this.timeoutMs, request.signal);
  }

  /** Resolves with a 2xx answer whose body is not yet read. */
  async #send(request: CallRequest, deadline: Deadline): Promise<Response> {
    for (let attempt = 0; ; attempt += 1) {
      const outcome = await this.#attempt(request, deadline);
      if (!(outcome instanceof CoppiceError)) return outcome;
      const mayRetry = request.idempotent && attempt < this.#maxRetries;
      const delayMs = mayRetry ? retryDelayMs(outcome, attempt) : undefined;
      if (delayMs === undefined || delayMs > deadline.remainingMs) throw outcome;
      await deadline.sleep(delayMs);
      request.onRetry?.();
    }
  }

  async #attempt(request: CallRequest, deadline: Deadline): Promise<Response | CoppiceError> {
    try {
      const response = await this.#fetch(this.#urlOf(request), this.#buildInit(request, deadline));
      if (response.ok) return response;
      const body = this.#redact(await collectPrefix(response.body, MAX_ERROR_BODY_BYTES));
      if (deadline.signal.aborted) throw deadline.signal.reason;
      return buildAnswerError(labelOf(request), { status: response.status, headers: response.headers, body });
    } catch (error) {
      const failure = buildConnectionError(request, deadline.reasonFor(error));
      if (failure instanceof CoppiceError && failure.code === 'connection_refused') return failure;
      throw failure;
    }
  }

  /** Removes the API key from an answer that is shown: a server at a wrong address may send the request back. */
  #redact(body: Uint8Array): Uint8Array {
    const text = new TextDecoder().decode(body);
    return text.includes(this.#getKey())
      ? new TextEncoder().encode(text.replaceAll(this.#getKey(), '…'))
      : body;
  }

  #urlOf(request: CallRequest): string {
    return `${this.#baseUrl}${request.path}${request.query ?? ''}`;
  }

  #buildInit(request: CallRequest, deadline: Deadline): StreamingRequestInit {
    const init: StreamingRequestInit = {
      method: request.method,
      headers: { ...request.headers, authorization: `Bearer ${this.#getKey()}` },
      signal: deadline.signal,
      // A redirect would turn a POST into a GET, and would send the key to another host.
      redirect: 'manual',
    };
    if (request.body !== undefined) init.body = request.body as NonNullable<RequestInit['body']>;
    if (request.body instanceof ReadableStream) init.duplex = 'half';
    return init;
  }
}

/** Returns the name of a request for messages: method and path, without the query. */
export function labelOf(request: Pick<CallRequest, 'method' | 'path'>): string {
  return `${request.method} ${request.path}`;
}

function parseJsonAnswer<Value>(
  request: CallRequest,
  response: Response,
  answer: {
    body: Uint8Array;
    parse: (value: unknown) => Value;
    redact: (bytes: Uint8Array) => Uint8Array;
  },
): Value {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(answer.body));
    // A record of something that failed has a field of this name, too, but not alone.
    const isError = Object.keys(Object(value)).length === 1;
    const late = { fields: isError ? readErrorFields(value) : {}, body: answer.body };
    const lateError = buildLateError(request, response, late);
    if (lateError !== undefined) throw lateError;
    return answer.parse(value);
  } catch (error) {
    if (error instanceof CoppiceError) throw error;
    const why = error instanceof Error ? error.message : String(error);
    throw new CoppiceError(
      `HTTP ${response.status} from ${labelOf(request)} is not an answer of the service (${why}); is baseUrl right? ${firstBytes(answer.redact(answer.body.subarray(0, MAX_ERROR_BODY_BYTES)))}`,
      {
        status: response.status,
        code: 'invalid_response',
        requestId: response.headers.get('x-request-id') ?? undefined,
        cause: error,
      },
    );
  }
}

/**
 * Returns the error of a body that follows a success status, or undefined if the body is not an error. The service
 * sends the status line of an exec when the command starts. If something fails later, it sends an error as the body and
 * then closes the connection.
 */
function buildLateError(
  request: CallRequest,
  response: Response,
  late: { fields: ErrorFields; body: Uint8Array },
): CoppiceError | undefined {
  const { code, message, requestId } = late.fields;
  if (code === undefined) return undefined;
  return new CoppiceError(
    `HTTP ${response.status} from ${labelOf(request)}, which failed later: ${firstBytes(late.body)}`,
    {
      status: response.status,
      ...toCodes(code),
      requestId: requestId ?? response.headers.get('x-request-id') ?? undefined,
      detail: message,
    },
  );
}

/** Returns the error for a failed connection. The client's own errors and the reason of an abort are returned as is. */
function buildConnectionError(request: CallRequest, error: unknown): unknown {
  const isAbort = request.signal?.aborted === true && error === request.signal.reason;
  if (isAbort || error instanceof CoppiceError) return error;
  const code = isConnectionRefused(error) ? 'connection_refused' : 'connection_failed';
  const why = error instanceof Error ? describeCause(error) : String(error);
  return new CoppiceError(`${labelOf(request)}: no connection to the service: ${why}`, {
    status: 0,
    code,
    cause: error,
  });
}

/** Returns the message of an error with that of its cause, because Node's fetch itself says only "fetch failed". */
function describeCause(error: Error): string {
  const { cause } = error;
  if (!(cause instanceof Error)) return error.message;
  const { code } = cause as { code?: unknown };
  const detail = cause.message === '' && typeof code === 'string' ? code : cause.message;
  return `${error.message} (${detail})`;
}
