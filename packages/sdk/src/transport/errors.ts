import { SERVICE_ERROR_CODES } from './error-codes.ts';

const MESSAGE_BODY_BYTES = 200;

/** Codes of the service, as in docs/reference/errors.md. */
export type ServiceErrorCode = (typeof SERVICE_ERROR_CODES)[number];

/**
 * Codes of the client itself:
 *
 * - `connection_refused`: the service did nothing, as no connection was made
 * - `connection_failed`: the connection broke; the service may have carried out the request
 * - `timeout`: the time of the call has elapsed; the service may have carried out the request
 * - `invalid_response`, `response_too_large`: the answer cannot be used
 * - `no_websocket`, `reader_too_slow`, `closed`, `shell_closed`: of spawned commands, shells and terminals
 * - `ambiguous_name`: of `getOrCreate()`, when sandboxes of several teams have the name
 * - `not_mocked`: of `@coppice/sdk/mock`, which does not have what was asked for
 * - `unknown_code`: a newer service sent a code that this version does not know; `serviceCode` has it
 */
export type ClientErrorCode =
  | 'ambiguous_name'
  | 'closed'
  | 'connection_failed'
  | 'connection_refused'
  | 'invalid_response'
  | 'no_websocket'
  | 'not_mocked'
  | 'reader_too_slow'
  | 'response_too_large'
  | 'shell_closed'
  | 'timeout'
  | 'unknown_code';

/** Values of `CoppiceError.code`. `http_<status>` is the code of an answer that did not come from the service. */
export type ErrorCode = ServiceErrorCode | ClientErrorCode | `http_${number}`;

const KNOWN_SERVICE_CODES: ReadonlySet<string> = new Set(SERVICE_ERROR_CODES);

/** The fields of a {@link CoppiceError}. */
export interface CoppiceErrorFields {
  status: number;
  code: ErrorCode;
  serviceCode?: string | undefined;
  requestId?: string | undefined;
  detail?: string | undefined;
  retryAfterMs?: number | undefined;
  cause?: unknown;
}

/**
 * The error of every failed call. There are two exceptions: a call aborted by your signal rejects with that signal's
 * reason, and an invalid argument is a `TypeError`.
 *
 * {@link ServiceErrorCode} has the codes of the service, {@link ClientErrorCode} those of the client.
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
  /** HTTP status of the answer. 0 when there was none. */
  readonly status: number;
  /** Machine-readable cause, for example `not_found`. `http_<status>` if the answer did not come from the service. */
  readonly code: ErrorCode;
  /** The code that the service sent, if it sent one. The same as `code`, unless that is `unknown_code`. */
  readonly serviceCode: string | undefined;
  /** Id of the request in the service's log. */
  readonly requestId: string | undefined;
  /** The full explanation of the service. `message` includes only the first 200 bytes of the body. */
  readonly detail: string | undefined;
  /** Milliseconds that the service asks to wait before a retry. */
  readonly retryAfterMs: number | undefined;

  /** Called by the client. */
  constructor(message: string, fields: CoppiceErrorFields) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.name = 'CoppiceError';
    this.status = fields.status;
    this.code = fields.code;
    this.serviceCode = fields.serviceCode;
    this.requestId = fields.requestId;
    this.detail = fields.detail;
    this.retryAfterMs = fields.retryAfterMs;
  }
}

/** The parts of an answer that {@link buildAnswerError} reads. */
export interface FailedAnswer {
  status: number;
  headers: Headers;
  body: Uint8Array;
}

/** Returns the error for an answer other than 2xx. `label` is the method and path, for the message. */
export function buildAnswerError(label: string, answer: FailedAnswer): CoppiceError {
  const error = parseErrorBody(answer.body);
  const location = answer.status >= 300 && answer.status < 400 ? answer.headers.get('location') : null;
  const redirect =
    location === null ? '' : ` (redirects are not followed; it points to ${location}, is baseUrl right?)`;
  return new CoppiceError(`HTTP ${answer.status} from ${label}${redirect}: ${firstBytes(answer.body)}`, {
    status: answer.status,
    ...(error.code === undefined ? { code: `http_${answer.status}` } : toCodes(error.code)),
    requestId: error.requestId ?? answer.headers.get('x-request-id') ?? undefined,
    detail: error.message,
    retryAfterMs: parseRetryAfterMs(answer.headers.get('retry-after')),
  });
}

/** Returns the codes of an error for one that the service sent. */
export function toCodes(serviceCode: string): Pick<CoppiceErrorFields, 'code' | 'serviceCode'> {
  const code = KNOWN_SERVICE_CODES.has(serviceCode) ? (serviceCode as ErrorCode) : 'unknown_code';
  return { code, serviceCode };
}

/** Resolves with null when the service answers that there is no such thing. */
export async function nullIfMissing<Found>(finding: Promise<Found>): Promise<Found | null> {
  try {
    return await finding;
  } catch (error) {
    if (error instanceof CoppiceError && error.status === 404) return null;
    throw error;
  }
}

/** Returns the first 200 bytes as text, cut between characters. */
export function firstBytes(body: Uint8Array): string {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const cut = body.length > MESSAGE_BODY_BYTES;
  // With `stream` the decoder holds back the bytes of an incomplete character.
  return decoder.decode(body.subarray(0, MESSAGE_BODY_BYTES), { stream: cut });
}

/**
 * Parses a Retry-After header, given in seconds or as an HTTP date. Returns milliseconds from now, or undefined for a
 * missing or invalid header.
 */
export function parseRetryAfterMs(header: string | null): number | undefined {
  if (header === null) return undefined;
  if (/^\s*\d+\s*$/.test(header)) return Number(header) * 1000;
  const at = Date.parse(header);
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}

/** The fields of an error of the service, `{"error": {...}}`. */
export interface ErrorFields {
  code?: string;
  message?: string;
  requestId?: string;
}

/** Returns the fields of `{"error": {...}}`. A field is undefined if the value has another shape. */
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

/** Parses the body of an error as {@link readErrorFields} does. The body may be anything. */
export function parseErrorBody(body: Uint8Array): ErrorFields {
  try {
    return readErrorFields(JSON.parse(new TextDecoder().decode(body)));
  } catch {
    // A proxy in between answered with HTML or text. The error then reports its status and first bytes.
    return {};
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
