/**
 * Texts of guests and callers, made honest: a control character, an invisible one, or one that turns the direction of the
 * text can make a name look like another. Each is shown as its escape.
 */

export interface TextPiece {
  text: string;
  /** The piece stands for a character that cannot be seen. */
  isEscape: boolean;
}

/** Control, format and private characters, lone surrogates, unassigned ones, and separators of lines. */
const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]/u;
const ALL_HIDDEN = new RegExp(HIDDEN, 'gu');
/** The same without the tab and the line feed, which a text of many lines has. */
const HIDDEN_IN_LINES = /(?![\t\n])[\p{C}\p{Zl}\p{Zp}]/gu;
const SHORT: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t', '\0': '\\0' };

/** Splits a name or another short text, so that the escapes can look different from the same letters in the text. */
export function splitHidden(text: string): readonly TextPiece[] {
  const pieces: TextPiece[] = [];
  let end = 0;
  for (const { 0: char, index } of text.matchAll(ALL_HIDDEN)) {
    if (index > end) pieces.push({ text: text.slice(end, index), isEscape: false });
    pieces.push({ text: escape(char), isEscape: true });
    end = index + char.length;
  }
  if (end < text.length) pieces.push({ text: text.slice(end), isEscape: false });
  return pieces;
}

/** Returns a name or another short text on one line, with escapes. */
export function showHidden(text: string): string {
  return text.replaceAll(ALL_HIDDEN, escape);
}

/** Returns a text of many lines with escapes. Lines that end as those of Windows lose only their carriage return. */
export function showHiddenInLines(text: string): string {
  return text.replaceAll('\r\n', '\n').replaceAll(HIDDEN_IN_LINES, escape);
}

function escape(char: string): string {
  const short = SHORT[char];
  if (short !== undefined) return short;
  const code = char.codePointAt(0) ?? 0;
  const digits = code.toString(16).toUpperCase();
  return code <= 0xff
    ? `\\x${digits.padStart(2, '0')}`
    : code <= 0xffff
      ? `\\u${digits.padStart(4, '0')}`
      : `\\u{${digits}}`;
}
