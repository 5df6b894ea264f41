import type { HttpBody, HttpFault, HttpHeadResult } from './http-head.ts';
import { type Authority, isSameAuthority, parseAuthority } from '../names/host-name.ts';

const HTTP_PORT = 80;
const MAX_FIELDS = 256;
const MAX_BODY_DIGITS = 15;
const FIELD = /^(?<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(?<value>[^\r\n]*)$/u;
const ABSOLUTE_FORM = /^(?<scheme>[a-z][a-z0-9+.-]*):\/\/(?<authority>[^/?#]*)(?<rest>[/?#].*)?$/iu;

/** Servers that pass fields to programs as variables read these names as the real ones. */
const DISGUISES: ReadonlySet<string> = new Set(['content_length', 'transfer_encoding']);

type Fields = Map<string, string[]>;

/** Parses a complete head including its end. The caller has checked the request line and the line endings. */
export function parseHttpHead(head: string): HttpHeadResult {
  const [requestLine = '', ...lines] = head.slice(0, -4).split('\r\n');
  const [method = '', target = '', version = ''] = requestLine.split(' ');
  const fields = parseFields(lines);
  if (typeof fields === 'string') return malformed(fields);
  const authority = findAuthority(method, target, fields, version === 'HTTP/1.1');
  if (typeof authority === 'string') return malformed(authority);
  const body = findBody(fields, version === 'HTTP/1.1');
  if (body === undefined) return malformed('framing');
  const upgrade = fields.has('upgrade');
  return { kind: 'http', method, authority, body, upgrade, headBytes: head.length };
}

function parseFields(lines: readonly string[]): Fields | HttpFault {
  if (lines.length > MAX_FIELDS) return 'too-large';
  const fields: Fields = new Map();
  for (const line of lines) {
    if (line.startsWith(' ') || line.startsWith('\t')) return 'folded-field';
    const { name, value } = FIELD.exec(line)?.groups ?? {};
    if (name === undefined || value === undefined) return 'field';
    const folded = name.toLowerCase();
    if (DISGUISES.has(folded)) return 'field';
    const values = fields.get(folded) ?? [];
    values.push(trimBlanks(value));
    fields.set(folded, values);
  }
  return fields;
}

/** Removes spaces and tabs at the end. `trim` would remove other characters, too. */
function trimBlanks(value: string): string {
  let end = value.length;
  while (end > 0 && (value[end - 1] === ' ' || value[end - 1] === '\t')) end -= 1;
  return value.slice(0, end);
}

/**
 * Finds the authority. The host in the target overrides the Host field (RFC 9112, 3.2.2), but not every server
 * complies, so both must agree.
 */
function findAuthority(
  method: string,
  target: string,
  fields: Fields,
  isHostNeeded: boolean,
): Authority | undefined | HttpFault {
  const hosts = fields.get('host');
  const host = hosts?.length === 1 ? parseAuthority(hosts[0] ?? '', HTTP_PORT) : undefined;
  if ((hosts !== undefined || isHostNeeded) && host === undefined) return 'host';
  if (target.startsWith('/') || (target === '*' && method === 'OPTIONS')) return host;
  const { scheme, authority } = ABSOLUTE_FORM.exec(target)?.groups ?? {};
  if (scheme?.toLowerCase() !== 'http' || authority === undefined) return 'request-line';
  const named = parseAuthority(authority, HTTP_PORT);
  if (named === undefined) return 'host';
  if (host !== undefined && !isSameAuthority(named, host)) return 'host-mismatch';
  return named;
}

/** Finds the framing of the body. Returns undefined if two servers could read it differently. */
function findBody(fields: Fields, isChunkedKnown: boolean): HttpBody | undefined {
  const lengths = fields.get('content-length');
  const encodings = fields.get('transfer-encoding');
  if (encodings !== undefined) {
    const isChunked = encodings.length === 1 && encodings[0]?.toLowerCase() === 'chunked';
    return isChunked && isChunkedKnown && lengths === undefined ? { kind: 'chunked' } : undefined;
  }
  if (lengths === undefined) return { kind: 'none' };
  const [length = ''] = lengths;
  if (lengths.length !== 1 || length.length > MAX_BODY_DIGITS || !/^\d+$/u.test(length)) return undefined;
  return { kind: 'length', bytes: Number(length) };
}

function malformed(fault: HttpFault): HttpHeadResult {
  return { kind: 'malformed', fault };
}
