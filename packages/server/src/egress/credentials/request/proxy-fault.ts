/** Of the errors below a fault, as many are named. */
const MAX_CAUSES = 4;

/**
 * Why a request that was not refused by its form has no answer of the service. Its texts are fixed ones but for the name of
 * the service's host: neither a secret nor what a server said gets into a log or to the guest by them. What only the operator
 * may see is the `cause`.
 */
export const PROXY_FAULTS = {
  network_policy: {
    status: 403,
    message: "The sandbox's network policy does not allow the host of this service.",
  },
  body_timeout: { status: 408, message: 'Nothing more of the body came for too long.' },
  /** Never sent: the guest has left, or what it may do was taken back. */
  ended: { status: 499, message: 'The request was ended before it was answered.' },
  upstream_unreachable: { status: 502, message: 'The service cannot be reached.' },
  upstream_untrusted: { status: 502, message: "The service's certificate cannot be verified." },
  upstream_failed: { status: 502, message: 'The service ended the connection before it answered.' },
  upstream_malformed: { status: 502, message: 'The service answered with what is not HTTP/1.1.' },
  secret_missing: {
    status: 503,
    message: 'The host is starting and does not have the secret of this service yet.',
  },
  unrecorded: { status: 503, message: 'The request could not be recorded, so its answer is withheld.' },
  upstream_timeout: { status: 504, message: 'The service did not answer in time.' },
} as const satisfies Record<string, { status: number; message: string }>;

export type ProxyFaultCode = keyof typeof PROXY_FAULTS;

export class ProxyFault extends Error {
  readonly code: ProxyFaultCode;

  constructor(code: ProxyFaultCode, options?: { cause?: unknown }) {
    super(PROXY_FAULTS[code].message, options);
    this.name = 'ProxyFault';
    this.code = code;
  }

  get status(): number {
    return PROXY_FAULTS[this.code].status;
  }
}

/** Of whatever has ended a request. */
export function toProxyFault(error: unknown): ProxyFault {
  if (error instanceof ProxyFault) return error;
  const code = findCode(error);
  if (code?.startsWith('HPE_') === true) return new ProxyFault('upstream_malformed', { cause: error });
  return new ProxyFault('upstream_failed', { cause: error });
}

/** The codes or names of the errors below it; nothing of their texts. */
export function describeCause(fault: ProxyFault): string | undefined {
  const names: string[] = [];
  for (let cause = fault.cause; cause instanceof Error && names.length < MAX_CAUSES; cause = cause.cause)
    names.push(cause instanceof ProxyFault ? cause.code : (findCode(cause) ?? cause.name));
  return names.length === 0 ? undefined : names.join(': ');
}

function findCode(error: unknown): string | undefined {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  return typeof code === 'string' ? code : undefined;
}
