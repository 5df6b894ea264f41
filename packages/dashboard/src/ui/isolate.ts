/** Scripts that are written from right to left, and marks that change the direction of text. */
const TURNS =
  /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\u200E\u200F\u202A-\u202E\u2066-\u2069]/u;
const FIRST_STRONG_ISOLATE = '\u2068';
const POP_ISOLATE = '\u2069';

/**
 * Returns a name for a place where only text is possible, such as a title: its direction, and its marks, do not change the
 * words around it. Elsewhere use `<bdi>`.
 */
export function isolate(name: string): string {
  if (!TURNS.test(name)) return name;
  // A mark that ends an isolate would end this one.
  return FIRST_STRONG_ISOLATE + name.replaceAll(/[\u2066-\u2069]/gu, '') + POP_ISOLATE;
}
