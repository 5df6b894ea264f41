/** JSON in the one spelling of RFC 8785, as the service hashes it. Only for what JSON.parse has made. */
export function canonicalize(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalize).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  // Default order is by UTF-16 code units, which is what the RFC asks for.
  const members = Object.keys(value)
    .sort()
    .map((name) => `${JSON.stringify(name)}:${canonicalize((value as Record<string, unknown>)[name])}`);
  return `{${members.join(',')}}`;
}
