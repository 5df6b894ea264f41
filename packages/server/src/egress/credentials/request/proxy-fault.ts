/** Maximum number of nested causes that are named. */
const MAX_CAUSES = 4;

/**
 * The reasons why an accepted request has no answer of the service. The texts are fixed, so they carry neither a secret
 * nor data of a server into a log or to the guest. Details for the operator are in `cause`.
 */
const PROXY_FAULTS = {
  network_policy: {
    status: 403,
    message: "The sandbox's network policy does not allow the host of this service.",
  },
  body_timeout: { status: 408, message: 'The body of the request did not arrive in time.' },
  /** Never sent: the guest has left, or its right was revoked. */
  ended: { status: 499, message: 'The request was ended before it was answered.' },
  upstream_unreachable: { status: 502, message: 'The service cannot be reached.' },
  upstream_untrusted: { status: 502, message: "The service's certificate cannot be verified." },
  upstream_failed: { status: 502, message: 'The service ended the connection before it answered.' },
  upstream_malformed: { status: 502, message: "The service's answer is not valid HTTP/1.1." },
  secret_missing: {
    status: 503,
    message: 'The host is starting and does not have the secret of this service yet.',
  },
  unrecorded: { status: 503, message: 'The request could not be recorded, so its answer is withheld.' },
  upstream_timeout: { status: 504, message: 'The service did not answer in time.' },
} as const satisfies Record<string, { status: number; message: string }>;

export type ProxyFaultCode = keyof typeof PROXY_FAULTS;

/** A fault of a request to a service. */
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

/** Returns the fault for any error that ended a request. */
export function toProxyFault(error: unknown): ProxyFault {
  if (error instanceof ProxyFault) return error;
  const code = findCode(error);
  if (code?.startsWith('HPE_') === true) return new ProxyFault('upstream_malformed', { cause: error });
  return new ProxyFault('upstream_failed', { cause: error });
}

/** Returns the codes or names of the nested causes, without their messages. Returns undefined if there are none. */
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
