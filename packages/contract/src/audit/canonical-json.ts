/**
 * Canonical JSON of RFC 8785 (JCS): the same value always gives the same bytes, and so the same hash. Names are sorted
 * by their UTF-16 code units; numbers and strings are written as in ECMAScript, as the RFC requires.
 */

/** Returns the canonical JSON of a value. Omits undefined properties. Throws TypeError if JSON cannot represent it. */
export function canonicalize(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalize).join(',')}]`;
  if (typeof value === 'object' && value !== null) return canonicalizeObject(value);
  return canonicalizeScalar(value);
}

function canonicalizeObject(object: object): string {
  const members = Object.entries(object)
    .filter(([, value]) => value !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => `${canonicalizeScalar(name)}:${canonicalize(value)}`);
  return `{${members.join(',')}}`;
}

function canonicalizeScalar(value: unknown): string {
  if (typeof value === 'number' && !Number.isFinite(value)) throw new TypeError(`JSON has no ${value}`);
  if (typeof value === 'string' && !value.isWellFormed()) {
    throw new TypeError('a string with half a surrogate pair has no canonical form');
  }
  if (value === null || ['boolean', 'number', 'string'].includes(typeof value)) return JSON.stringify(value);
  throw new TypeError(`JSON has no ${typeof value}`);
}
