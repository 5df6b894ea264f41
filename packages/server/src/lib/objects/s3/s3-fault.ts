/**
 * Faults of requests to an S3 server: whether a repetition may help, and what an operator should know. Errors of the SDK
 * may contain keys, signatures and tokens of the request, so only a few of their fields are used.
 */
import { DeadlineError } from '../../waiting/deadline.ts';

export interface S3Fault {
  /** Code of S3, of the operating system, or name of the error. */
  code: string;
  status: number | undefined;
  isTransient: boolean;
  /** Cause and remedy, for people. */
  text: string;
}

const MAX_TEXT_LENGTH = 300;
const TRANSIENT_STATUS = new Set([408, 425, 429]);
const NOT_IMPLEMENTED = 501;
/** S3 answers these with 4xx, although the same request may succeed. */
const TRANSIENT_CODES = new Set([
  'ConditionalRequestConflict',
  'ExpiredToken',
  'OperationAborted',
  // The SDK corrects its time by that of the answer.
  'RequestTimeTooSkewed',
  'RequestTimeout',
  'SlowDown',
]);
const CERTIFICATE = /CERT|SELF_SIGNED|UNABLE_TO_(?:GET|VERIFY)|ERR_TLS/u;

const CREDENTIALS =
  'give the service credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_SHARED_CREDENTIALS_FILE, a web identity or the role of the instance';
const PERMISSION =
  'check the credentials, and that they may get, put, delete and list objects of this bucket and abort uploads';
const REGION = 'set region= to the region of the bucket';

/** Explanations by code, or by status where there is none for the code. */
const EXPLANATIONS: Readonly<Record<string, readonly [cause: string, remedy: string]>> = {
  CredentialsProviderError: ['there are no credentials', CREDENTIALS],
  TokenProviderError: ['there are no credentials', CREDENTIALS],
  InvalidAccessKeyId: ['the server does not know the access key', CREDENTIALS],
  SignatureDoesNotMatch: ['the server refused the signature', 'check the secret access key and the region'],
  RequestTimeTooSkewed: ["the server's clock differs from this machine's", 'set the clock of this machine'],
  NoSuchBucket: ['the bucket does not exist', 'create it, or correct its name'],
  PermanentRedirect: ['the bucket is in another region', REGION],
  AuthorizationHeaderMalformed: ['the server refused the region', REGION],
  EPROTO: ['the server does not speak TLS', 'correct the endpoint'],
  301: ['the bucket is in another region', REGION],
  401: ['the server refused the credentials', PERMISSION],
  403: ['the server denied access', PERMISSION],
  404: ['the server does not find the bucket', 'create it, or correct its name and the endpoint'],
  501: ['the server does not support the request', 'use a server with conditional writes (If-None-Match: *)'],
};
const UNTRUSTED = [
  'the certificate of the server is not trusted',
  'set ca= to a PEM file with its authority, or correct the endpoint',
] as const;
const OUTAGE = 'check that the server runs and is reachable from this machine';

interface SdkError {
  name?: string;
  message?: string;
  code?: unknown;
  $metadata?: { httpStatusCode?: number };
}

export function describeFault(error: unknown): S3Fault {
  const { name = 'Error', code: systemCode, $metadata } = error as SdkError;
  const status = $metadata?.httpStatusCode;
  const code = status === undefined && typeof systemCode === 'string' ? systemCode : name;
  const explanation = CERTIFICATE.test(code)
    ? UNTRUSTED
    : (EXPLANATIONS[code] ?? EXPLANATIONS[String(status)]);
  const isRefusal = explanation !== undefined || (status !== undefined && status >= 300 && status < 500);
  const isTransient =
    TRANSIENT_CODES.has(code) ||
    TRANSIENT_STATUS.has(status ?? 0) ||
    (status !== undefined && status >= 500 && status !== NOT_IMPLEMENTED) ||
    !isRefusal;
  const [cause, remedy] = explanation ?? [describeCause(error, { code, status }), OUTAGE];
  const shown = explanation === undefined ? cause : `${cause} (${code})`;
  return { code, status, isTransient, text: `${shown}; ${remedy}` };
}

function describeCause(error: unknown, { code, status }: Pick<S3Fault, 'code' | 'status'>): string {
  if (error instanceof DeadlineError) return error.message;
  if (status !== undefined) return `the server answered with ${status} (${plain(code)})`;
  const message = plain((error as SdkError).message ?? '');
  return message.includes(code) ? message : `${message} (${plain(code)})`.trim();
}

/** A text of the server or the SDK, in one line of bounded length. */
function plain(text: string): string {
  return text.replaceAll(/[^\x20-\x7E]+/gu, ' ').slice(0, MAX_TEXT_LENGTH);
}
