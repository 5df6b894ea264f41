/**
 * Patterns of a .dockerignore, with the meaning that Docker gives them: `*` and `?` stay within a name, `**` does not, `[a-c]` and
 * `[^a-c]` are one character, and a backslash takes the meaning from the next one.
 *
 * A pattern is matched by following all places of the path that its parts can have reached, so the time is bounded by the
 * length of the pattern times that of the path, whatever the pattern. A regular expression could take exponential time.
 */

/** The text is no pattern; the message says why. */
export class PatternError extends Error {}

/** Returns whether a part of a pattern takes one character. */
type OneCharacter = (character: string) => boolean;

/**
 * `inName`: any characters but a slash. `directories`: nothing, or anything up to a slash. `anything`: any characters.
 */
type Part = OneCharacter | 'inName' | 'directories' | 'anything';

export class IgnorePattern {
  readonly #parts: readonly Part[];

  /** Throws PatternError. */
  constructor(text: string) {
    this.#parts = parseParts(Array.from(text));
  }

  /** `path` is relative, with slashes, as its characters. */
  matches(path: readonly string[]): boolean {
    let places = [0];
    for (const part of this.#parts) {
      places = advance(part, path, places);
      if (places.length === 0) return false;
    }
    return places.includes(path.length);
  }

  /** Returns whether a path that begins with `prefix` may match. */
  mayMatchBelow(prefix: readonly string[]): boolean {
    let places = [0];
    for (const part of this.#parts) {
      if (places.includes(prefix.length)) return true;
      places = advance(part, prefix, places);
    }
    return places.includes(prefix.length) && this.#parts.at(-1) === 'anything';
  }
}

/** Returns the places, in ascending order, that `part` can reach from `places`. */
function advance(part: Part, path: readonly string[], places: readonly number[]): number[] {
  if (typeof part === 'function')
    return places.filter((place) => place < path.length && part(path[place] ?? '')).map((place) => place + 1);
  const first = places[0];
  if (first === undefined) return [];
  const isFrom = new Set(places);
  const reached: number[] = [];
  for (let place = first; place <= path.length; place += 1) {
    const before = path[place - 1];
    const isReached =
      part === 'anything' ||
      (part === 'directories' && place > first && before === '/') ||
      (part === 'inName' && reached.at(-1) === place - 1 && before !== '/');
    if (isReached || isFrom.has(place)) reached.push(place);
  }
  return reached;
}

function parseParts(pattern: readonly string[]): Part[] {
  const parts: Part[] = [];
  for (let at = 0; at < pattern.length;) {
    const { part, next } = parsePart(pattern, at);
    parts.push(part);
    at = next;
  }
  return parts;
}

function parsePart(pattern: readonly string[], at: number): { part: Part; next: number } {
  const character = pattern[at] ?? '';
  if (character === '*' && pattern[at + 1] === '*') return parseDoubleStar(pattern, at);
  if (character === '*') return { part: 'inName', next: at + 1 };
  if (character === '?') return { part: (one) => one !== '/', next: at + 1 };
  if (character === '[') return parseClass(pattern, at);
  const { character: literal, next } =
    character === '\\' ? parseEscape(pattern, at) : { character, next: at + 1 };
  return { part: (one) => one === literal, next };
}

/** A slash after `**` belongs to it. Only `**` at the beginning of an otherwise plain text also ends within a name. */
function parseDoubleStar(pattern: readonly string[], at: number): { part: Part; next: number } {
  const hasSlash = pattern[at + 2] === '/';
  const next = at + (hasSlash ? 3 : 2);
  const rest = pattern.slice(next);
  const isSuffix = at === 0 && !hasSlash && !rest.some((character) => '*?[]\\'.includes(character));
  return { part: rest.length === 0 || isSuffix ? 'anything' : 'directories', next };
}

/** Parses `[…]`, which takes a slash as any other character. */
function parseClass(pattern: readonly string[], start: number): { part: OneCharacter; next: number } {
  const isNegated = pattern[start + 1] === '^';
  const ranges: { from: string; to: string }[] = [];
  let at = start + (isNegated ? 2 : 1);
  while (pattern[at] !== ']' || ranges.length === 0) {
    const { character: from, next } = parseInClass(pattern, at);
    const end = pattern[next] === '-' ? parseInClass(pattern, next + 1) : { character: from, next };
    if (codeOf(from) > codeOf(end.character))
      throw new PatternError(`the range ${from}-${end.character} is the wrong way round`);
    ranges.push({ from, to: end.character });
    at = end.next;
  }
  const isInRange = (one: string): boolean =>
    ranges.some(({ from, to }) => codeOf(from) <= codeOf(one) && codeOf(one) <= codeOf(to));
  return { part: (one) => isInRange(one) !== isNegated, next: at + 1 };
}

function parseInClass(pattern: readonly string[], at: number): { character: string; next: number } {
  const character = pattern[at];
  if (character === undefined)
    throw new PatternError(String.raw`a "[" lacks its "]"; write \[ for a bracket in a name`);
  if (character === '-' || character === ']')
    throw new PatternError(`a "${character}" within […] needs a backslash before it`);
  return character === '\\' ? parseEscape(pattern, at) : { character, next: at + 1 };
}

function parseEscape(pattern: readonly string[], at: number): { character: string; next: number } {
  const character = pattern[at + 1];
  if (character !== undefined) return { character, next: at + 2 };
  throw new PatternError(String.raw`nothing follows the last backslash; write \\ for a backslash in a name`);
}

function codeOf(character: string): number {
  return character.codePointAt(0) ?? 0;
}
