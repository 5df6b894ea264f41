const MAX_LABELS = 8;

/** Reads labels of the form `name=value`, separated by spaces. Undefined for anything else, or for too many. */
export function parseLabelFilter(text: string): Record<string, string> | undefined {
  const words = text.split(/\s+/u).filter(Boolean);
  if (words.length > MAX_LABELS) return undefined;
  const pairs = words.map((word) => {
    const at = word.indexOf('=');
    return [word.slice(0, at), word.slice(at + 1), at > 0] as const;
  });
  return pairs.every(([, , isPair]) => isPair)
    ? Object.fromEntries(pairs.map(([name, value]) => [name, value]))
    : undefined;
}
