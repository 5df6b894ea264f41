/**
 * One call of the service: address, bearer header, deadline, retries, and errors of one kind.
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
  type ErrorFields,
} from './errors.ts';
import { isConnectionRefused, retryDelayMs } from './retry.ts';
import type { WebSocketConstructor } from '../streams/web-socket.ts';

/** Enough for every error body of the service; what a proxy adds beyond it is not read. */
const MAX_ERROR_BODY_BYTES = 65_536;

/** `duplex` is missing in the DOM's type; Node and Chrome demand it for a body that is a stream. */
type StreamingRequestInit = RequestInit & { duplex?: 'half' };

export interface CallRequest {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Below the base URL, with encoded segments. */
  path: string;
  query?: string;
  headers?: Record<string, string>;
  body?: string | Uint8Array | Blob | ReadableStream<Uint8Array> | undefined;
  /** Whether doing it twice is the same as doing it once; only such a request is tried again. */
  idempotent: boolean;
  /** Called before each further try. */
  onRetry?: () => void;
  signal?: AbortSignal | undefined;
  /** Default: the client's `timeoutMs`. */
  timeoutMs?: number | undefined;
  /** How long an answer that is read as it comes may stand still. Default: the client's `timeoutMs`. */
  stallMs?: number | undefined;
}

export interface Answer<Value> {
  value: Value;
  headers: Headers;
}

export class Transport {
  readonly #apiKey: string;
  readonly #baseUrl: string;
  readonly #fetch: FetchFunction;
  readonly #maxRetries: number;
  readonly timeoutMs: number;
  /** The client's option. */
  readonly webSocket: WebSocketConstructor | undefined;

  constructor(options: ResolvedClientOptions) {
    this.#apiKey = options.apiKey;
    this.#baseUrl = options.baseUrl;
    this.#fetch = options.fetch;
    this.#maxRetries = options.maxRetries;
    this.timeoutMs = options.timeoutMs;
    this.webSocket = options.WebSocket;
  }

  get baseUrl(): string {
    return this.#baseUrl;
  }

  /** Sends a request and parses its JSON answer. `parse` throws TypeError on a value of the wrong shape. */
  async callJson<Value>(request: CallRequest, parse: (value: unknown) => Value): Promise<Answer<Value>> {
    const deadline = this.#startDeadline(request);
    try {
      return await this.callJsonWithin(request, deadline, parse);
    } finally {
      deadline.end();
    }
  }

  /** As `callJson`, under a deadline that the caller made and ends. */
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
    return { value: parseJsonAnswer(request, response, { body, parse }), headers: response.headers };
  }

  /** Sends a request whose answer has no body that counts. */
  async callEmpty(request: CallRequest): Promise<void> {
    const deadline = this.#startDeadline(request);
    try {
      const response = await this.#send(request, deadline);
      await response.body?.cancel();
    } finally {
      deadline.end();
    }
  }

  /** Sends a request whose answer is read as it comes. */
  async callStream(request: CallRequest): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
    const deadline = this.#startDeadline(request);
    try {
      const response = await this.#send(request, deadline);
      return watchDownload(response.body, deadline, {
        stallMs: request.stallMs ?? this.timeoutMs,
        mapError: (error) => buildConnectionError(request, deadline.reasonFor(error)),
      });
    } catch (error) {
      deadline.end();
      throw error;
    }
  }

  #startDeadline(request: CallRequest): Deadline {
    return new Deadline(labelOf(request), request.timeoutMs ?? this.timeoutMs, request.signal);
  }

  /** Resolves with a 2xx answer whose body is still to be read. */
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
      const body = await collectPrefix(response.body, MAX_ERROR_BODY_BYTES);
      if (deadline.signal.aborted) throw deadline.signal.reason;
      return buildAnswerError(labelOf(request), { status: response.status, headers: response.headers, body });
    } catch (error) {
      const failure = buildConnectionError(request, deadline.reasonFor(error));
      if (failure instanceof CoppiceError && failure.code === 'connection_refused') return failure;
      throw failure;
    }
  }

  #urlOf(request: CallRequest): string {
    return `${this.#baseUrl}${request.path}${request.query ?? ''}`;
  }

  #buildInit(request: CallRequest, deadline: Deadline): StreamingRequestInit {
    const init: StreamingRequestInit = {
      method: request.method,
      headers: { ...request.headers, authorization: `Bearer ${this.#apiKey}` },
      signal: deadline.signal,
      // A redirect would turn a POST into a GET, and the key belongs to no other host.
      redirect: 'manual',
    };
    if (request.body !== undefined) init.body = request.body as NonNullable<RequestInit['body']>;
    if (request.body instanceof ReadableStream) init.duplex = 'half';
    return init;
  }
}

export function labelOf(request: Pick<CallRequest, 'method' | 'path'>): string {
  return `${request.method} ${request.path}`;
}

function parseJsonAnswer<Value>(
  request: CallRequest,
  response: Response,
  answer: { body: Uint8Array; parse: (value: unknown) => Value },
): Value {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(answer.body));
    const late = { fields: readErrorFields(value), body: answer.body };
    const lateError = buildLateError(request, response, late);
    if (lateError !== undefined) throw lateError;
    return answer.parse(value);
  } catch (error) {
    if (error instanceof CoppiceError) throw error;
    const why = error instanceof Error ? error.message : String(error);
    throw new CoppiceError(
      `HTTP ${response.status} from ${labelOf(request)} is not an answer of the service (${why}); is baseUrl right? ${firstBytes(answer.body)}`,
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
 * The status line of an exec leaves when the command starts. What fails later arrives as an error body under it, after
 * which the service breaks the connection off. Undefined if the body is no such error.
 */
function buildLateError(
  request: CallRequest,
  response: Response,
  late: { fields: ErrorFields; body: Uint8Array },
): CoppiceError | undefined {
  const { code, message, requestId } = late.fields;
  if (code === undefined) return undefined;
  return new CoppiceError(
    `HTTP ${response.status} from ${labelOf(request)}, which failed under way: ${firstBytes(late.body)}`,
    {
      status: response.status,
      code,
      requestId: requestId ?? response.headers.get('x-request-id') ?? undefined,
      detail: message,
    },
  );
}

/** Leaves alone what already says why: the client's own errors and the reason of the caller's abort. */
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

/** Node's fetch says only "fetch failed"; the reason is in the cause. */
function describeCause(error: Error): string {
  const { cause } = error;
  if (!(cause instanceof Error)) return error.message;
  const { code } = cause as { code?: unknown };
  const detail = cause.message === '' && typeof code === 'string' ? code : cause.message;
  return `${error.message} (${detail})`;
}
