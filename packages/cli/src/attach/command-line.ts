/**
 * Returns the command for `/bin/sh -c`. One word is a command line for the shell, as in the client. Several words reach the
 * program unchanged; it replaces the shell, which would otherwise answer signals in its place.
 */
export function toCommandLine(words: readonly string[]): string {
  const [line, ...rest] = words;
  return rest.length === 0 ? (line ?? '') : `exec ${words.map(quote).join(' ')}`;
}

/** Returns a word in quotes of the shell. */
export function quote(word: string): string {
  return /^[A-Za-z0-9_./:=@%+,-]+$/u.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
