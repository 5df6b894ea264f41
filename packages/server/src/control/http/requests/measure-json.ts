const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPENING_BRACKET = 0x5b;
const CLOSING_BRACKET = 0x5d;
const OPENING_BRACE = 0x7b;
const CLOSING_BRACE = 0x7d;

export interface JsonMeasure {
  values: number;
  /** Of arrays and objects in each other. */
  depth: number;
}

/**
 * Counts the values of a JSON text before it is parsed: parsed values take up to 30 times the memory of their text, and
 * deep ones overflow the stack of later code. Of a text that is not JSON, it returns any numbers.
 */
export function measureJson(text: string): JsonMeasure {
  let commas = 0;
  let containers = 0;
  let open = 0;
  let depth = 0;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) at = findEndOfString(text, at);
    else if (code === COMMA) commas += 1;
    else if (code === OPENING_BRACKET || code === OPENING_BRACE) {
      containers += 1;
      open += 1;
      depth = Math.max(depth, open);
    } else if (code === CLOSING_BRACKET || code === CLOSING_BRACE) open -= 1;
  }
  // Each container has at most one value more than commas. An empty one has none, and counts as if it had one.
  return { values: 1 + commas + containers, depth };
}

function findEndOfString(text: string, start: number): number {
  for (let at = text.indexOf('"', start + 1); at !== -1; at = text.indexOf('"', at + 1)) {
    let first = at;
    while (text.charCodeAt(first - 1) === BACKSLASH) first -= 1;
    const isEscaped = (at - first) % 2 === 1;
    if (!isEscaped) return at;
  }
  return text.length;
}
