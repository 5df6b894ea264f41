/**
 * Sentences about entries of a log. Callers and guests choose many of the values, so a value is a part of its own: it is
 * shown as text that cannot be taken for words of the page.
 */
export interface Value {
  readonly value: string;
}
export type Sentence = readonly (string | Value)[];

/** Control characters, marks that change the direction of text, and characters without a width. */
// oxlint-disable-next-line no-misleading-character-class -- each of them stands for itself
const UNSEEN = /[\p{Cc}\u061C\u200B\u200E\u200F\u2028-\u202E\u2060-\u2069\uFEFF]/gu;
const SHORT_ESCAPES: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };

/** Joins words of the page with values and other sentences. */
export function say(
  words: TemplateStringsArray,
  ...values: readonly (string | Value | Sentence)[]
): Sentence {
  return words.flatMap((text, index) => {
    const value = values[index];
    return [text, ...(Array.isArray(value) ? (value as Sentence) : [value as string | Value])].filter(
      (part) => part !== undefined && part !== '',
    );
  });
}

/** Makes a value of a field. Whatever an entry has there becomes text. */
export function quote(field: unknown): Value {
  return { value: revealUnseen(toText(field)) };
}

/** Returns a sentence only if a condition holds. */
export function when(condition: boolean, sentence: Sentence): Sentence {
  return condition ? sentence : [];
}

/** Returns the sentence as plain text. */
export function toPlainText(sentence: Sentence): string {
  return sentence.map((part) => (typeof part === 'string' ? part : part.value)).join('');
}

/** Returns a field of an entry as text: text as it is, anything else as JSON. */
export function toText(field: unknown): string {
  if (typeof field === 'string') return field;
  return field === undefined ? '' : JSON.stringify(field);
}

/** Writes characters that cannot be seen, or that change how others are shown, as escapes. */
export function revealUnseen(text: string): string {
  return text.replaceAll(
    UNSEEN,
    (character) =>
      SHORT_ESCAPES[character] ?? `\\u{${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}}`,
  );
}
