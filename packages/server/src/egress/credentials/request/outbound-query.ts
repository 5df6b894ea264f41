/**
 * Builds the query for the service. It removes parameters that would authenticate the guest with another identity, and
 * refuses those that would change the request.
 */
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
/** Parameters by which frameworks use another method or other headers than the judged ones. */
const OVERRIDE_PARAMETER = /^(?:_method|x-http-method(?:-override)?|\$httpmethod|\$httpheaders|\$req.*)$/u;

/** Builds the query. `dropped` has the names of the service's parameters for secrets, decoded and in lower case. */
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

/**
 * Returns the names of a parameter: more than one if it contains a semicolon, where some servers split, too. Returns
 * undefined if a name cannot be decoded.
 */
function listNames(parameter: string): string[] | undefined {
  const names: string[] = [];
  for (const part of parameter.split(';')) {
    const encoded = part.split('=', 1)[0] ?? '';
    try {
      // Some frameworks remove blanks, brackets, and everything after a NUL.
      const decoded = decodeURIComponent(encoded.replaceAll('+', ' ')).split('\0', 1)[0] ?? '';
      names.push(decoded.trim().toLowerCase().split('[', 1)[0] ?? '');
    } catch {
      return undefined;
    }
  }
  return names;
}
