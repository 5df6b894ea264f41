/** The query as it goes upstream: without what would authenticate the guest as somebody else, or change the request. */
import { accept, refuse, type Checked } from './refusal.ts';

const MAX_QUERY_BYTES = 8192;
const QUERY_CHARACTERS = /^[\x21\x22\x24-\x7e]*$/u;

const SECRET_PARAMETERS: ReadonlySet<string> = new Set([
  'access_token',
  'api_key',
  'api-key',
  'apikey',
  'oauth_token',
  'x-api-key',
  'x-goog-api-key',
]);
/** By which frameworks take another method or other headers than those that rules have judged. */
const OVERRIDE_PARAMETER = /^(?:_method|x-http-method(?:-override)?|\$httpmethod|\$httpheaders|\$req.*)$/u;

/** `dropped`: names of the service's own parameters for secrets, decoded and in lower case. */
export function buildOutboundQuery(raw: string, dropped: readonly string[]): Checked<string> {
  if (raw.length > MAX_QUERY_BYTES) return refuse('path-too-long');
  if (!QUERY_CHARACTERS.test(raw)) return refuse('query');
  const kept: string[] = [];
  for (const parameter of raw.split('&')) {
    const names = listNames(parameter);
    if (names === undefined) return refuse('query');
    if (names.some((name) => OVERRIDE_PARAMETER.test(name))) return refuse('override');
    if (!names.some((name) => SECRET_PARAMETERS.has(name) || dropped.includes(name))) kept.push(parameter);
  }
  return accept(kept.join('&'));
}

/** More than one where a semicolon stands, as some servers split there, too. undefined if one cannot be decoded. */
function listNames(parameter: string): string[] | undefined {
  const names: string[] = [];
  for (const part of parameter.split(';')) {
    const encoded = part.split('=', 1)[0] ?? '';
    try {
      // Some frameworks take off what follows a NUL, blanks and brackets.
      const decoded = decodeURIComponent(encoded.replaceAll('+', ' ')).split('\0', 1)[0] ?? '';
      names.push(decoded.trim().toLowerCase().split('[', 1)[0] ?? '');
    } catch {
      return undefined;
    }
  }
  return names;
}
