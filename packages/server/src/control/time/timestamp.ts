/** Returns a time as answers show it. */
export function toTimestamp(unixMs: number | null): string | null {
  return unixMs === null ? null : new Date(unixMs).toISOString();
}
