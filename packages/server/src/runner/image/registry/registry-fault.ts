/** What can go wrong between us and a registry, before it is put into words for a caller. */
export type FaultKind =
  /** The name of a host is not known, or not in time. */
  | 'lookup'
  /** A private address that the operator did not name. */
  | 'private'
  | 'connect'
  | 'certificate'
  /** HTTP was spoken where TLS was expected. */
  | 'plain-http'
  /** Too slow: connecting, answering, or delivering. */
  | 'slow'
  | 'redirect'
  | 'not-a-registry'
  | 'too-large'
  /** 5xx, or a status that means nothing here. */
  | 'status'
  | 'rate-limit'
  | 'not-found'
  /** 401 or 403 without credentials. */
  | 'not-shown'
  | 'credentials-refused'
  /** The credentials are good, but not for this. */
  | 'credentials-insufficient'
  /** A challenge that we cannot or may not answer. */
  | 'challenge'
  | 'digest'
  | 'short'
  | 'unsupported';

export interface FaultOptions {
  cause?: unknown;
  /** May succeed when it is asked again at once. */
  isPassing?: boolean;
  retryAfterMs?: number;
}

/** `detail` goes into the text that strangers read: hosts and numbers, never a query string, a header or a body. */
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
