/**
 * Selects the header fields of a guest's request for the service, from flat lists of names and values (the form of
 * `rawHeaders`). It removes hop-by-hop fields and fields that would authenticate the guest with another identity. It
 * refuses fields that would make the service do something other than the judged request.
 */
import type { CredentialService } from '../../../lib/credential-services/credential-service.ts';
import { accept, refuse, type Checked } from './refusal.ts';

export type Field = [name: string, value: string];

const MAX_FIELDS = 128;
const MAX_HEAD_BYTES = 65_536;
const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/u;
/** Node reads header bytes as Latin-1. */
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/u;

/** Hop-by-hop fields (RFC 9110, 7.6.1), and fields that are built anew. `trailer`: trailers are not forwarded. */
const OF_CONNECTION: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'content-length',
  'upgrade',
  'host',
  'expect',
  'http2-settings',
  'via',
  'forwarded',
  'true-client-ip',
  'cf-connecting-ip',
  'x-client-ip',
  'x-host',
  'x-original-host',
  'x-real-ip',
]);
/** Fields that carry secrets. Cookies belong to a browser's session, which requests with a key do not need. */
const SECRET_HEADERS: ReadonlySet<string> = new Set([
  'authorization',
  'cookie',
  'cookie2',
  'api-key',
  'apikey',
  'x-api-key',
  'x-api-token',
  'x-access-token',
  'x-auth-token',
  'x-authorization',
  'x-goog-api-key',
  'x-amz-security-token',
  'x-amzn-authorization',
  'private-token',
]);
const DROPPED_FAMILY = /^(?:proxy-|x-forwarded-|x-original-forwarded-|sec-websocket-)/u;
const OVERRIDE =
  /^(?:x-http-method(?:-override)?|x-method-override|x-http-path-override|x-original-(?:ur[il]|method)|x-rewrite-ur[il]|x-override-ur[il])$/u;

/** Returns the end-to-end fields of the guest that the service may receive, without framing and secrets. */
export function selectHeaders(raw: readonly string[], service: CredentialService): Checked<Field[]> {
  const fields = readFields(raw);
  if (!fields.ok) return fields;
  const hopByHop = listNamedByConnection(fields.value);
  const { authentication } = service;
  const ofService = new Set([...service.dropped_headers, ...Object.keys(service.fixed_headers)]);
  if (authentication.kind === 'header') ofService.add(authentication.header);
  const kept: Field[] = [];
  for (const field of fields.value) {
    const name = foldName(field[0]);
    if (OVERRIDE.test(name)) return refuse('override');
    const isDropped =
      OF_CONNECTION.has(name) ||
      SECRET_HEADERS.has(name) ||
      DROPPED_FAMILY.test(name) ||
      ofService.has(name) ||
      hopByHop.has(name);
    if (!isDropped) kept.push(field);
  }
  return accept(addRowHeaders(kept, service));
}

/** Returns all values of a field, in order. */
export function listValues(raw: readonly string[], wanted: string): string[] {
  const values: string[] = [];
  for (let index = 0; index + 1 < raw.length; index += 2)
    if (raw[index]?.toLowerCase() === wanted) values.push(raw[index + 1] ?? '');
  return values;
}

/** Returns the framing of the body. It refuses framing that two servers could read differently (request smuggling). */
export function buildFraming(raw: readonly string[]): Checked<Field[]> {
  const lengths = listValues(raw, 'content-length');
  const encodings = listValues(raw, 'transfer-encoding');
  if (lengths.length + encodings.length > 1) return refuse('framing');
  const [length] = lengths;
  const [encoding] = encodings;
  if (encoding !== undefined)
    return encoding.trim().toLowerCase() === 'chunked'
      ? accept([['transfer-encoding', 'chunked'] satisfies Field])
      : refuse('framing');
  if (length === undefined) return accept([]);
  if (!/^\d{1,15}$/u.test(length)) return refuse('framing');
  return accept([['content-length', String(Number(length))] satisfies Field]);
}

function readFields(raw: readonly string[]): Checked<Field[]> {
  if (raw.length % 2 !== 0) return refuse('headers');
  if (raw.length / 2 > MAX_FIELDS) return refuse('headers-too-large');
  const fields: Field[] = [];
  let size = 0;
  for (let index = 0; index < raw.length; index += 2) {
    const name = raw[index] ?? '';
    const value = raw[index + 1] ?? '';
    size += name.length + value.length;
    if (size > MAX_HEAD_BYTES) return refuse('headers-too-large');
    if (!NAME.test(name) || !VALUE.test(value)) return refuse('headers');
    fields.push([name, value]);
  }
  return accept(fields);
}

/** Folds a name as servers do that turn header names into variables: without case, and with "_" as "-". */
function foldName(name: string): string {
  return name.toLowerCase().replaceAll('_', '-');
}

function listNamedByConnection(fields: readonly Field[]): ReadonlySet<string> {
  const values = fields.filter(([name]) => name.toLowerCase() === 'connection').map(([, value]) => value);
  return new Set(values.flatMap((value) => value.split(',').map((name) => foldName(name.trim()))));
}

function addRowHeaders(fields: readonly Field[], service: CredentialService): Field[] {
  const present = new Set(fields.map(([name]) => name.toLowerCase()));
  const defaults = Object.entries(service.default_headers).filter(
    ([name]) => !present.has(name) && !Object.hasOwn(service.fixed_headers, name),
  );
  return [...fields, ...defaults, ...Object.entries(service.fixed_headers)];
}
