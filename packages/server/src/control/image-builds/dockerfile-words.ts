/** Words of a Dockerfile: quotes, escapes and variables. */

/** Splits at spaces outside of quotes. The words keep their quotes, for {@link expandWord}. */
export function splitWords(text: string, escape: string): string[] {
  const words: string[] = [];
  let word = '';
  let quote = '';
  for (let index = 0; index < text.length; index += 1) {
    const character = text[index] ?? '';
    if (character === escape && quote !== "'" && index + 1 < text.length) {
      word += character + (text[index + 1] ?? '');
      index += 1;
      continue;
    }
    if (quote === '' && /\s/u.test(character)) {
      if (word !== '') words.push(word);
      word = '';
      continue;
    }
    if (quote === '' && (character === '"' || character === "'")) quote = character;
    else if (character === quote) quote = '';
    word += character;
  }
  if (word !== '') words.push(word);
  return words;
}

export type Lookup = (name: string) => string | undefined;

const VARIABLE = /^\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-+])([^}]*))?\})/u;

/** Removes quotes and escapes, and replaces variables, but not between single quotes. An unset variable is empty. */
export function expandWord(word: string, { escape, lookup }: { escape: string; lookup: Lookup }): string {
  let text = '';
  let quote = '';
  for (let index = 0; index < word.length;) {
    const character = word[index] ?? '';
    if (quote !== "'" && character === escape && index + 1 < word.length) {
      const next = word[index + 1] ?? '';
      // Between double quotes an escape is only for characters that mean something there.
      text += quote === '"' && !['"', '$', escape].includes(next) ? escape + next : next;
      index += 2;
      continue;
    }
    const variable = quote === "'" || character !== '$' ? null : VARIABLE.exec(word.slice(index));
    if (variable !== null) {
      text += valueOf(variable, lookup);
      index += variable[0].length;
      continue;
    }
    if (quote === '' && (character === '"' || character === "'")) quote = character;
    else if (quote !== '' && character === quote) quote = '';
    else text += character;
    index += 1;
  }
  return text;
}

function valueOf([, plain, braced, operator, alternative = '']: RegExpExecArray, lookup: Lookup): string {
  const value = lookup(plain ?? braced ?? '');
  const isMissing = value === undefined || (operator?.startsWith(':') === true && value === '');
  if (operator?.endsWith('-') === true) return isMissing ? alternative : value;
  if (operator?.endsWith('+') === true) return isMissing ? '' : alternative;
  return value ?? '';
}
