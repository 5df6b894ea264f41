const MESSAGE_BODY_BYTES = 200;

/** What a {@link CoppiceError} is made of. */
export interface CoppiceErrorFields {
  status: number;
  code: string;
  requestId?: string | undefined;
  detail?: string | undefined;
  retryAfterMs?: number | undefined;
  cause?: unknown;
}

/**
 * Every failure of a call, except an abort by your own signal, which rejects with that signal's reason, and an
 * unusable argument, which is a `TypeError`.
 *
 * Codes of the service are listed in docs/reference/errors.md. The client adds `connection_refused`,
 * `connection_failed`, `timeout`, `invalid_response` and `response_too_large`; for a spawned command, a shell and a
 * terminal also `no_websocket`, `reader_too_slow`, `closed` and `shell_closed`.
 *
 * @example
 * try {
 *   await sandbox.exec('true');
 * } catch (error) {
 *   if (error instanceof CoppiceError && error.code === 'invalid_state') console.error(error.detail);
 *   else throw error;
 * }
 */
export class CoppiceError extends Error {
  /** HTTP status of the answer; 0 when there was none. */
  readonly status: number;
  /** Machine-readable cause, for example `not_found`. */
  readonly code: string;
  /** Finds the request in the service's log. */
  readonly requestId: string | undefined;
  /** The service's explanation in full; `message` holds only the first 200 bytes of the body. */
  readonly detail: string | undefined;
  /** How long the service asks to wait before another try. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, fields: CoppiceErrorFields) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.name = 'CoppiceError';
    this.status = fields.status;
    this.code = fields.code;
    this.requestId = fields.requestId;
    this.detail = fields.detail;
    this.retryAfterMs = fields.retryAfterMs;
  }
}

/** What the error mapper needs of an answer. */
export interface FailedAnswer {
  status: number;
  headers: Headers;
  body: Uint8Array;
}

/** Maps an answer other than 2xx. `label` is the method and path, for the message. */
export function buildAnswerError(label: string, answer: FailedAnswer): CoppiceError {
  const error = parseErrorBody(answer.body);
  const location = answer.status >= 300 && answer.status < 400 ? answer.headers.get('location') : null;
  const redirect =
    location === null ? '' : ` (redirects are not followed; it points to ${location}, is baseUrl right?)`;
  return new CoppiceError(`HTTP ${answer.status} from ${label}${redirect}: ${firstBytes(answer.body)}`, {
    status: answer.status,
    code: error.code ?? `http_${answer.status}`,
    requestId: error.requestId ?? answer.headers.get('x-request-id') ?? undefined,
    detail: error.message,
    retryAfterMs: parseRetryAfterMs(answer.headers.get('retry-after')),
  });
}

/** The first 200 bytes as text, cut at a character border. */
export function firstBytes(body: Uint8Array): string {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const cut = body.length > MESSAGE_BODY_BYTES;
  // With `stream` the decoder keeps back the bytes of a character that is not complete.
  return decoder.decode(body.subarray(0, MESSAGE_BODY_BYTES), { stream: cut });
}

/** Seconds or an HTTP date, as milliseconds from now. */
export function parseRetryAfterMs(header: string | null): number | undefined {
  if (header === null) return undefined;
  if (/^\s*\d+\s*$/.test(header)) return Number(header) * 1000;
  const at = Date.parse(header);
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}

export interface ErrorFields {
  code?: string;
  message?: string;
  requestId?: string;
}

/** The fields of `{"error": {...}}`, each undefined where the body is not of that shape. */
export function readErrorFields(value: unknown): ErrorFields {
  const error = isObject(value) ? value['error'] : undefined;
  if (!isObject(error)) return {};
  const { code, message, request_id: requestId } = error;
  return {
    ...(typeof code === 'string' && { code }),
    ...(typeof message === 'string' && { message }),
    ...(typeof requestId === 'string' && { requestId }),
  };
}

/** The same of a body that may be anything. */
export function parseErrorBody(body: Uint8Array): ErrorFields {
  try {
    return readErrorFields(JSON.parse(new TextDecoder().decode(body)));
  } catch {
    // A proxy in between answers with HTML or text; the status and the first bytes then say what there is to say.
    return {};
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
