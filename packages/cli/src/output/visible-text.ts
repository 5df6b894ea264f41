/**
 * Characters that move the cursor, change the terminal or reverse the direction of text. Names and labels come from
 * other people and from guests.
 */
// oxlint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/gu;

/** Returns the text with each such character replaced by its code, for example `\u{1b}`. */
export function toVisible(text: string): string {
  return text.replaceAll(CONTROL, (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`);
}
