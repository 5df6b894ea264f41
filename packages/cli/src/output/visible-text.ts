/**
 * Characters that move the cursor, change the terminal or reverse the direction of text. Names and labels come from
 * other people and from guests.
 */
// oxlint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;
/** Those of them that lay out lines. */
const LAYOUT = '\n\r\t';
/** Those that `JSON.stringify` leaves as they are. */
const CONTROL_IN_JSON = /[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;

/** Returns the text with each such character replaced by its code, for example `\u{1b}`. */
export function toVisible(text: string): string {
  return text.replaceAll(CONTROL, (character) => `\\u{${hexOf(character)}}`);
}

/**
 * Does the same for output of several lines, of which line ends and tabs stay. A carriage return stays, too: it can only
 * overwrite its own line.
 */
export function toVisibleOutput(text: string): string {
  return text.replaceAll(CONTROL, (character) =>
    LAYOUT.includes(character) ? character : `\\u{${hexOf(character)}}`,
  );
}

/** Returns the value as JSON. Such characters are escaped, which leaves the document the same. */
export function toVisibleJson(value: unknown, indent = 0): string {
  const text = JSON.stringify(value, undefined, indent);
  return text.replaceAll(CONTROL_IN_JSON, (character) => `\\u${hexOf(character).padStart(4, '0')}`);
}

function hexOf(character: string): string {
  return character.codePointAt(0)?.toString(16) ?? '';
}
