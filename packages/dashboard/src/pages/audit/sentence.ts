import { showHidden } from '../../ui/visible-text.ts';

/**
 * Sentences about entries of a log. Callers and guests choose many of the values, so a value is a part of its own: it is
 * shown as text that cannot be taken for words of the page.
 */
export interface Value {
  readonly value: string;
}
export type Sentence = readonly (string | Value)[];

/** In UTF-16 code units. A command may have a million: a sentence needs its beginning. */
const MAX_VALUE = 240;

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

/** Makes a value of a field. Anything that an entry has there becomes text; the rest of a long one is left out. */
export function quote(field: unknown): Value {
  const text = toText(field);
  return { value: showHidden(text.length <= MAX_VALUE ? text : `${cut(text)}…`) };
}

/** Does not cut a character that consists of two code units. */
function cut(text: string): string {
  const end = text.slice(0, MAX_VALUE);
  return end.isWellFormed() ? end : end.slice(0, -1);
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
