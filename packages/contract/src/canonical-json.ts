/**
 * JSON in the one spelling of RFC 8785 (JCS), so that whoever hashes the same value hashes the same bytes. Names are sorted by
 * their UTF-16 code units; numbers and strings are written as ECMAScript does, which is what the RFC asks for.
 */

/** Throws TypeError for what JSON cannot carry. A property that is undefined is left out. */
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
