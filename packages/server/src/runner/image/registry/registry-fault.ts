/** Kinds of faults between the service and a registry, before they are described for a caller. */
export type FaultKind =
  /** The name of a host cannot be resolved, or not in time. */
  | 'lookup'
  /** A private address that the operator did not name. */
  | 'private'
  | 'connect'
  | 'certificate'
  /** The server speaks HTTP where TLS was expected. */
  | 'plain-http'
  /** Too slow: connecting, answering, or delivering. */
  | 'slow'
  | 'redirect'
  | 'not-a-registry'
  | 'too-large'
  /** 5xx, or an unexpected status. */
  | 'status'
  | 'rate-limit'
  | 'not-found'
  /** 401 or 403 without credentials. */
  | 'not-shown'
  | 'credentials-refused'
  /** The credentials are valid, but not for this image. */
  | 'credentials-insufficient'
  /** A challenge that the service cannot or may not answer. */
  | 'challenge'
  | 'digest'
  | 'short'
  | 'unsupported';

export interface FaultOptions {
  cause?: unknown;
  /** Whether an immediate retry may succeed. */
  isPassing?: boolean;
  retryAfterMs?: number;
}

/**
 * A fault. `detail` is shown to untrusted callers: it holds hosts and numbers, never a query string, header or body.
 */
export class RegistryFault extends Error {
  readonly kind: FaultKind;
  readonly detail: string;
  readonly isPassing: boolean;
  readonly retryAfterMs: number | undefined;

  constructor(kind: FaultKind, detail: string, options: FaultOptions = {}) {
    super(`${kind}: ${detail}`, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'RegistryFault';
    this.kind = kind;
    this.detail = detail;
    this.isPassing = options.isPassing ?? false;
    this.retryAfterMs = options.retryAfterMs;
  }
}
