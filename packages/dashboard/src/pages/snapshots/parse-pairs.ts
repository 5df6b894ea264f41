/** Reads labels or variables, one on each line as `name=value`. Throws with the number of the line that is neither. */
export function parsePairs(text: string): Record<string, string> {
  const pairs: Record<string, string> = {};
  for (const [index, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    const at = line.indexOf('=');
    const name = line.slice(0, at).trim();
    if (at === -1 || name === '') throw new Error(`Line ${index + 1} must be name=value.`);
    pairs[name] = line.slice(at + 1).trim();
  }
  return pairs;
}
