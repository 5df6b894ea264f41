/**
 * What the credential proxy refuses. A value and not an error: each is an expected answer to a hostile guest. Its texts are
 * fixed ones, so that neither a secret nor what the guest wrote can get into a log by them.
 */
export const REFUSALS = {
  target: { status: 400, message: 'The target must be /proxy/<service>/<path>.' },
  service: { status: 404, message: 'No credential of this service is granted to the sandbox.' },
  path: {
    status: 400,
    message:
      'The path has dot segments, backslashes, control characters, or is not percent-encoded once as UTF-8.',
  },
  'path-too-long': { status: 414, message: 'The path or query is too long for the credential proxy.' },
  query: { status: 400, message: 'The query has characters that must be percent-encoded.' },
  override: { status: 403, message: 'The request would override its own method, path or headers.' },
  method: { status: 405, message: 'The credential proxy does not forward this method.' },
  headers: { status: 400, message: 'The headers are malformed.' },
  'headers-too-large': { status: 431, message: 'The headers are too large for the credential proxy.' },
  framing: { status: 400, message: 'The length of the body is stated in more than one way.' },
  upgrade: {
    status: 400,
    message: 'The service takes no upgrade, or the request for a WebSocket is malformed.',
  },
  'endpoint-rule': {
    status: 403,
    message: 'No endpoint rule of the credential allows this method and path.',
  },
  'encoded-slash': {
    status: 403,
    message: 'No rule for paths allows an encoded slash; only a rule without paths does.',
  },
} as const satisfies Record<string, { status: number; message: string }>;

export type RefusalReason = keyof typeof REFUSALS;

export interface Refusal {
  reason: RefusalReason;
  /** Of the answer to the guest. */
  status: number;
  message: string;
}

export type Checked<T> = { ok: true; value: T } | { ok: false; refusal: Refusal };

export function accept<T>(value: T): Checked<T> {
  return { ok: true, value };
}

export function refuse(reason: RefusalReason): Checked<never> {
  return { ok: false, refusal: buildRefusal(reason) };
}

export function buildRefusal(reason: RefusalReason): Refusal {
  return { reason, ...REFUSALS[reason] };
}
