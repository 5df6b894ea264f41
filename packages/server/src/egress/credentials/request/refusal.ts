/**
 * The refusals of the credential proxy. They are values and not errors, because each is an expected answer to a hostile
 * guest. The texts are fixed, so that they carry neither a secret nor input of the guest into a log.
 */
const REFUSALS = {
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
  framing: { status: 400, message: 'The length of the body is not stated in exactly one valid way.' },
  upgrade: {
    status: 400,
    message: 'The service does not accept WebSockets, or the upgrade request is malformed.',
  },
  'endpoint-rule': {
    status: 403,
    message: 'No endpoint rule of the credential allows this method and path.',
  },
  'encoded-slash': {
    status: 403,
    message: 'Rules with paths do not allow an encoded slash; only a rule without paths does.',
  },
} as const satisfies Record<string, { status: number; message: string }>;

export type RefusalReason = keyof typeof REFUSALS;

export interface Refusal {
  reason: RefusalReason;
  /** HTTP status of the answer to the guest. */
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
