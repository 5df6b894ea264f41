const MARK = '\u{FFFD}';
/** All control characters but line feed and tab. */
const CONTROL = /[^\P{Cc}\n\t]/gu;

/**
 * Makes a text of a stranger fit for an error: at most `maxLength` characters, well-formed Unicode, and without control
 * characters, which PostgreSQL (NUL) and terminals (escape sequences) do not take as text.
 */
export function plainText(text: string, maxLength: number): string {
  return text.slice(0, maxLength).toWellFormed().replaceAll(CONTROL, MARK);
}
