/**
 * Path rules of `credentials_v2` (see the docs of the endpoint): a plain path matches as a prefix of whole segments,
 * `*` matches within a segment, a trailing `/*` (or `/`) matches everything below. Rules are compared with decoded
 * segments, so a request cannot evade a rule by another spelling of the path.
 */

export const MAX_PATH_RULE_BYTES = 512;
const MAX_WILDCARDS = 8;
const MAX_ENCODING_LAYERS = 8;

const VISIBLE_ASCII = /^[\x21-\x7e]*$/u;
const ENCODED_BYTE = /%(?<hex>[0-9a-f]{2})/giu;
const ENCODED_DOT_OR_SLASH = /%(?:2e|2f|5c)/iu;
const SEPARATOR_OR_CONTROL = /[/\\\p{Cc}]/u;

/** The pieces between the wildcards of a segment; a segment without wildcards has one piece. */
export type SegmentRule = readonly string[];

export interface PathRule {
  segments: readonly SegmentRule[];
  /** `exact`: nothing follows. `prefix`: whole segments may follow. `below`: at least one segment follows. */
  tail: 'exact' | 'prefix' | 'below';
}

/** Parses a path rule. Throws RangeError if `findPathRuleFault` finds a fault in it. */
export function parsePathRule(text: string): PathRule {
  const fault = findPathRuleFault(text);
  if (fault !== undefined) throw new RangeError(`a path rule ${fault}`);
  const segments = text.slice(1).split('/');
  const last = segments.at(-1) ?? '';
  const isBelow = last === '*' || last === '';
  const hasWildcard = segments.some((segment) => segment.includes('*'));
  return {
    segments: (isBelow ? segments.slice(0, -1) : segments).map((segment) =>
      segment.split('*').map((piece) => decodeURIComponent(piece)),
    ),
    tail: isBelow ? 'below' : hasWildcard ? 'exact' : 'prefix',
  };
}

/** Returns the fault of a rule, as the rest of a sentence that begins with the name of its field. */
export function findPathRuleFault(text: string): string | undefined {
  if (!text.startsWith('/')) return 'must begin with "/": write the path alone, without scheme and host';
  if (text.length > MAX_PATH_RULE_BYTES) return `must be at most ${MAX_PATH_RULE_BYTES} bytes`;
  if (/[?#]/u.test(text)) return 'must have no query and no fragment: a rule covers only the path';
  if (text.includes('\\')) return 'must not contain a backslash';
  if (!VISIBLE_ASCII.test(text))
    return 'must be printable ASCII without spaces: percent-encode other characters';
  if (text.includes('//')) return 'must not contain "//"';
  if (text.includes('**')) return 'must not contain "**": a trailing "/*" matches everything below';
  if (text.split('*').length - 1 > MAX_WILDCARDS) return `must have at most ${MAX_WILDCARDS} wildcards`;
  return findEncodingFault(text);
}

function findEncodingFault(text: string): string | undefined {
  if (ENCODED_DOT_OR_SLASH.test(text))
    return 'must not contain an encoded ".", "/" or "\\": it would match no request';
  for (const segment of text.slice(1).split('/')) {
    const decoded = decodeSegment(segment);
    if (decoded === undefined) return 'must be percent-encoded as valid UTF-8';
    if (/\p{Cc}/u.test(decoded)) return 'must not contain an encoded control character';
    if (isDotSegment(decoded)) return 'must not contain "." or ".." as a segment';
    if (hasHiddenSeparator(decoded)) return 'must not be encoded twice';
  }
  return undefined;
}

/** Decodes a segment once; returns undefined for stray percent signs and invalid UTF-8. */
export function decodeSegment(segment: string): string | undefined {
  try {
    return decodeURIComponent(segment);
  } catch {
    return undefined;
  }
}

/**
 * Whether a decoded segment is `.` or `..`, also with parameters (`..;x`) or surrounding blanks: some servers remove
 * these before they resolve dot segments.
 */
export function isDotSegment(decoded: string): boolean {
  const bare = (decoded.normalize('NFKC').split(';', 1)[0] ?? '').trim();
  return bare === '.' || bare === '..' || (bare === '' && decoded !== '');
}

/** Whether a server that decodes more than once would see a separator or a dot segment that Coppice does not see. */
export function hasHiddenSeparator(decoded: string): boolean {
  let layer = decoded;
  for (let count = 0; count < MAX_ENCODING_LAYERS; count++) {
    const next = layer.replaceAll(ENCODED_BYTE, (_, hex: string) =>
      String.fromCodePoint(Number.parseInt(hex, 16)),
    );
    if (next === layer) return false;
    if (SEPARATOR_OR_CONTROL.test(next) || isDotSegment(next)) return true;
    layer = next;
  }
  return true;
}
