/** Returns the canonical JSON of RFC 8785, which the service hashes. `value` must come from `JSON.parse`. */
export function canonicalize(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalize).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  // The default order is by UTF-16 code units, as the RFC requires.
  const members = Object.keys(value)
    .sort()
    .map((name) => `${JSON.stringify(name)}:${canonicalize((value as Record<string, unknown>)[name])}`);
  return `{${members.join(',')}}`;
}
