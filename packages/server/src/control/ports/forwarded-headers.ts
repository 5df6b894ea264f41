/**
 * Rewrites heads for the port proxy. Order, case and repetitions of the fields stay. Fields of a single connection (RFC
 * 9110, 7.6.1) and fields between the client and this service are removed. All heads are flat lists of names and
 * values, the form of `rawHeaders`.
 */
import { STATUS_CODES, type IncomingMessage } from 'node:http';

export const PREVIEW_COOKIE = 'coppice_preview';
/** Names of cookies of this service, which guests neither get nor set. */
const OWN_COOKIE = /^(?:__Host-|__Secure-)?coppice_/iu;
const OWN_KEY = /^Bearer\s+cop_/iu;

const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'te',
]);
const TO_SERVICE = new Set(['host', 'expect', 'forwarded', 'proxy-authorization']);
const SET_BY_PROXY = /^x-(?:forwarded-|real-ip$)/iu;
/** Fields that apply to the whole origin, which is the service's: a guest may not set them. */
const SPEAKS_FOR_ORIGIN =
  /^(?:strict-transport-security|clear-site-data|alt-svc|service-worker-allowed|access-control-.*)$/u;

export interface RequestHead {
  request: IncomingMessage;
  port: number;
  clientAddress: string;
  /** True if the client authenticates to this service by `Authorization`: the guest must not get it. */
  isAuthorizationOurs: boolean;
}

/** RFC 9112, section 4. Node's parser lets control characters through, and its writer throws for them. */
const REASON_PHRASE = /^[\t\x20-\x7e\x80-\xff]*$/u;

type Field = [name: string, value: string];

export function buildRequestHead({
  request,
  port,
  clientAddress,
  isAuthorizationOurs,
}: RequestHead): string[] {
  const { headers } = request;
  const isDropped = (name: string, value: string): boolean =>
    TO_SERVICE.has(name) ||
    SET_BY_PROXY.test(name) ||
    (name === 'authorization' && (isAuthorizationOurs || OWN_KEY.test(value)));
  const kept = readFields(request.rawHeaders, namedByConnection(headers.connection)).flatMap(
    ([name, value]): Field[] => {
      const lower = name.toLowerCase();
      if (isDropped(lower, value)) return [];
      if (lower !== 'cookie') return [[name, value]];
      const cookies = withoutOwnCookies(value);
      return cookies === '' ? [] : [[name, cookies]];
    },
  );
  return [
    ['Host', `localhost:${port}`] satisfies Field,
    ...kept,
    ...buildFraming(request),
    ['X-Forwarded-For', clientAddress] satisfies Field,
    ['X-Forwarded-Host', headers.host ?? ''] satisfies Field,
    ['X-Forwarded-Proto', 'https'] satisfies Field,
    ['X-Real-IP', clientAddress] satisfies Field,
  ].flat();
}

/** Returns the phrase of a guest's status, or the usual one if HTTP does not allow the guest's. */
export function readReason({ statusCode = 0, statusMessage = '' }: IncomingMessage): string {
  return REASON_PHRASE.test(statusMessage) ? statusMessage : (STATUS_CODES[statusCode] ?? '');
}

export interface AnswerHead {
  /** True if the answer appears under this service's origin instead of one of the sandbox's. */
  ownOrigin: boolean;
  /** If false, the head announces no trailers. */
  mayHaveTrailers: boolean;
}

export function buildAnswerHead(
  answer: IncomingMessage,
  { ownOrigin, mayHaveTrailers }: AnswerHead,
): string[] {
  const fields = readFields(answer.rawHeaders, namedByConnection(answer.headers.connection));
  const isDropped = (name: string): boolean =>
    (ownOrigin && SPEAKS_FOR_ORIGIN.test(name)) || (!mayHaveTrailers && name === 'trailer');
  return fields
    .filter(([name]) => !isDropped(name.toLowerCase()))
    .flatMap(([name, value]) =>
      name.toLowerCase() === 'set-cookie' ? keepCookie(name, value) : [name, value],
    );
}

/** Builds the head of an upgrade, which keeps `Connection` and `Upgrade`. */
export function buildUpgradeHead(answer: IncomingMessage): string[] {
  const { upgrade = '' } = answer.headers;
  return [
    'Connection',
    'Upgrade',
    'Upgrade',
    upgrade,
    ...buildAnswerHead(answer, { ownOrigin: true, mayHaveTrailers: false }),
  ];
}

/** Builds the trailers in the form of Node's `addTrailers`. */
export function buildTrailers(rawTrailers: readonly string[]): Field[] {
  return readFields(rawTrailers, new Set());
}

function readFields(raw: readonly string[], alsoDropped: ReadonlySet<string>): Field[] {
  const fields: Field[] = [];
  for (let index = 0; index + 1 < raw.length; index += 2) {
    const name = raw[index] ?? '';
    const lower = name.toLowerCase();
    if (!HOP_BY_HOP.has(lower) && !alsoDropped.has(lower)) fields.push([name, raw[index + 1] ?? '']);
  }
  return fields;
}

function namedByConnection(connection: string | undefined): ReadonlySet<string> {
  const names = (connection ?? '').split(',').map((name) => name.trim().toLowerCase());
  // A client that names these would have them dropped before they reach their recipient.
  return new Set(names.filter((name) => !/^(?:|cookie|content-length|content-type|host)$/u.test(name)));
}

/**
 * Builds the fields for the length of the body and the parts of the old framing that the new connection must repeat.
 */
function buildFraming({ headers, method }: IncomingMessage): Field[] {
  const fields: Field[] = [];
  if (/\btrailers\b/iu.test(String(headers.te ?? ''))) fields.push(['TE', 'trailers']);
  if (headers['transfer-encoding'] !== undefined) fields.push(['Transfer-Encoding', 'chunked']);
  else if (headers['content-length'] === undefined && /^(?:POST|PUT|PATCH)$/u.test(method ?? ''))
    fields.push(['Content-Length', '0']);
  const { upgrade } = headers;
  const isUpgrade = upgrade !== undefined && /\bupgrade\b/iu.test(headers.connection ?? '');
  return [
    ...fields,
    ...(isUpgrade ? [['Connection', 'Upgrade'] satisfies Field, ['Upgrade', upgrade] satisfies Field] : []),
  ];
}

function withoutOwnCookies(value: string): string {
  const cookies = value.split(';').map((cookie) => cookie.trim());
  return cookies.filter((cookie) => !OWN_COOKIE.test(cookie)).join('; ');
}

/** Removes a cookie's domain, so that a guest sets cookies for its own origin only. Drops cookies of this service. */
function keepCookie(name: string, value: string): string[] {
  if (OWN_COOKIE.test(value.trim())) return [];
  return [name, value.replace(/;\s*domain\s*=[^;]*/giu, '')];
}
