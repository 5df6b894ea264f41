/**
 * Heads as they pass the port proxy: order, case and repetitions of the fields stay, what belongs to one connection only
 * (RFC 9110, 7.6.1) goes, and so does what is between the client and this service. All as flat lists of names and values,
 * the form of `rawHeaders`.
 */
import { STATUS_CODES, type IncomingMessage } from 'node:http';

export const PREVIEW_COOKIE = 'coppice_preview';
/** Names of cookies of this service, which no guest gets and none may set. */
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
/** They speak for the whole origin, which is the service's: a guest may not. */
const SPEAKS_FOR_ORIGIN =
  /^(?:strict-transport-security|clear-site-data|alt-svc|service-worker-allowed|access-control-.*)$/u;

export interface RequestHead {
  request: IncomingMessage;
  port: number;
  clientAddress: string;
  /** The client authenticates to this service by `Authorization`: it is not the guest's. */
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

/** The phrase of a guest's status; the usual one in place of what HTTP does not allow. */
export function readReason({ statusCode = 0, statusMessage = '' }: IncomingMessage): string {
  return REASON_PHRASE.test(statusMessage) ? statusMessage : (STATUS_CODES[statusCode] ?? '');
}

export interface AnswerHead {
  /** The answer is shown under this service's own origin, not under one of the sandbox's. */
  ownOrigin: boolean;
  /** Else it announces none. */
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

/** Of an upgrade: `Connection` and `Upgrade` are what it is about. */
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

/** As Node's `addTrailers` takes them. */
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
  // A client that names these would have them dropped on the way to whom they are meant for.
  return new Set(names.filter((name) => !/^(?:|cookie|content-length|content-type|host)$/u.test(name)));
}

/** How long the body is and which parts of the old framing the new connection has to repeat. */
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

/** Without its domain, so that a guest sets cookies for its own origin and for no other. */
function keepCookie(name: string, value: string): string[] {
  if (OWN_COOKIE.test(value.trim())) return [];
  return [name, value.replace(/;\s*domain\s*=[^;]*/giu, '')];
}
