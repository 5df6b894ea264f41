/**
 * The one table of error codes. A code is never reused for another meaning. Docs and the OpenAPI description
 * are generated from or tested against it.
 *
 * `retryable` says whether the same request may succeed later unchanged. A request that is answered with 429 or 503 can
 * be repeated unchanged: it was not carried out, it was undone, or it is idempotent.
 */
export const ERRORS = {
  invalid_request: {
    status: 400,
    retryable: false,
    summary: 'A field or the body is malformed or unknown; the message names it.',
  },
  image_not_pinned: {
    status: 400,
    retryable: false,
    summary: 'The image has no tag or a floating one (latest, lts, stable).',
  },
  invalid_image: {
    status: 400,
    retryable: false,
    summary: 'The image reference or the image itself cannot be used, or its registry is not allowed.',
  },
  conflicting_options: {
    status: 400,
    retryable: false,
    summary: 'Two options that exclude each other were given.',
  },
  unauthorized: {
    status: 401,
    retryable: false,
    summary:
      'The API key is missing, malformed, revoked, expired or of another region; or the caller is not signed in.',
  },
  credit_exhausted: {
    status: 402,
    retryable: true,
    summary: "The organization's credit is used up: nothing new runs until more is granted.",
  },
  forbidden_origin: {
    status: 403,
    retryable: false,
    summary: "A page of another origin sent the request with its visitor's session, or to `/mcp`.",
  },
  forbidden: {
    status: 403,
    retryable: false,
    summary:
      'You may see this resource, but not do this: it requires an owner, a member of the team, or an API key with fewer limits.',
  },
  not_found: { status: 404, retryable: false, summary: 'There is no such resource in this organization.' },
  image_not_found: { status: 404, retryable: false, summary: 'The registry does not have this image.' },
  file_not_found: {
    status: 404,
    retryable: false,
    summary: 'There is no such file or directory in the sandbox.',
  },
  file_error: {
    status: 400,
    retryable: false,
    summary: "The sandbox's kernel failed to open, read or write the file; the message ends with the errno.",
  },
  method_not_allowed: {
    status: 405,
    retryable: false,
    summary: 'The path does not support this method; the header `Allow` lists the supported ones.',
  },
  invalid_state: {
    status: 409,
    retryable: false,
    summary: 'The sandbox is in a state that does not allow the operation.',
  },
  agent_outdated: {
    status: 409,
    retryable: false,
    summary:
      'The sandbox comes from a snapshot or hibernation of an older version, whose agent cannot do this.',
  },
  secret_unreadable: {
    status: 409,
    retryable: false,
    summary: 'A stored secret was sealed with another master key; store it again.',
  },
  snapshot_unusable: {
    status: 409,
    retryable: false,
    summary:
      'The snapshot is damaged, or requires something that this machine does not have; the message names it.',
  },
  secret_in_use: {
    status: 409,
    retryable: true,
    summary: 'The credentials of a sandbox name the secret: set them without it first.',
  },
  disk_in_use: {
    status: 409,
    retryable: true,
    summary: 'A sandbox has the disk, or what one wrote to it is still being stored; the message names it.',
  },
  disk_has_forks: {
    status: 409,
    retryable: true,
    summary: 'Disks that were forked from this disk exist: delete them first.',
  },
  disk_changed: {
    status: 409,
    retryable: false,
    summary:
      'The disk is no longer as the saved sandbox knows it: another sandbox wrote to it, or it was deleted.',
  },
  already_exists: { status: 409, retryable: false, summary: 'The name is taken.' },
  events_lost: {
    status: 410,
    retryable: false,
    summary: 'The events from which you continue are no longer kept; begin with `after=0`.',
  },
  payload_too_large: { status: 413, retryable: false, summary: 'The body exceeds the stated limit.' },
  range_not_satisfiable: {
    status: 416,
    retryable: false,
    summary: 'The file has no bytes in the requested range.',
  },
  idempotency_mismatch: {
    status: 422,
    retryable: false,
    summary: 'The Idempotency-Key was already used with another body.',
  },
  headers_too_large: {
    status: 431,
    retryable: false,
    summary: 'The request line and the headers together exceed 16 KiB.',
  },
  capacity: {
    status: 429,
    retryable: true,
    summary: 'The machine has no room for this now, or the organization has used up its share.',
  },
  rate_limited: { status: 429, retryable: true, summary: 'Too many requests.' },
  internal: {
    status: 500,
    retryable: true,
    summary: 'A fault of the service; details are in its log under the request id.',
  },
  build_failed: {
    status: 422,
    retryable: false,
    summary:
      'A step of the build of an image failed; the message names the step and ends with its last output.',
  },
  registry_unavailable: {
    status: 502,
    retryable: true,
    summary: 'The image registry cannot be reached or failed.',
  },
  guest_unreachable: { status: 502, retryable: true, summary: 'The agent in the sandbox does not answer.' },
  port_unreachable: {
    status: 502,
    retryable: true,
    summary: 'Nothing in the sandbox listens on the port, or it ended the connection.',
  },
  disk_full: { status: 507, retryable: false, summary: "The sandbox's disk is full." },
  unavailable: {
    status: 503,
    retryable: true,
    summary: 'The service is starting or stopping, or has paused the sandbox.',
  },
  outcome_unknown: {
    status: 504,
    retryable: false,
    summary: 'The request may have been carried out, or may still be: check before you repeat it.',
  },
} as const satisfies Record<string, { status: number; retryable: boolean; summary: string }>;

export type ErrorCode = keyof typeof ERRORS;

export function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === 'string' && Object.hasOwn(ERRORS, value);
}

/** Wire form of every error answer. */
export interface ErrorBody {
  error: {
    code: ErrorCode;
    message: string;
    request_id?: string;
    trace_id?: string;
    region?: { name: string; base_url: string | null };
  };
}

/**
 * An error with a code from the table. `message` is shown to the caller: it names the field or step and the
 * remedy, and contains no secret. Details for the operator alone belong in `cause`.
 */
export class AppError extends Error {
  readonly code: ErrorCode;
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    options: { details?: Record<string, unknown>; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'AppError';
    this.code = code;
    this.details = options.details;
  }

  get status(): number {
    return ERRORS[this.code].status;
  }
}
