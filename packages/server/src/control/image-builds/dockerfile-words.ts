/**
 * Words of a Dockerfile: quotes, escapes and variables, as the shell lexer of BuildKit reads them. Each character is read once,
 * and a result is bounded while it is joined, because the text comes from a client.
 */

/** Bytes of a word, as written and after its variables are replaced. */
const MAX_WORD_BYTES = 32 << 10;
/** Alternatives within alternatives, `${A:-${B:-…}}`. */
const MAX_NESTED = 16;
/** BuildKit takes letters of any script; a digit or another special parameter of a shell is a name of one character. */
const NAME = /[\p{L}_][\p{L}\p{Nd}_]*|[0-9]+|[@*#?\-$!]/uy;
const FORMS = '${NAME}, ${NAME:-word}, ${NAME-word}, ${NAME:+word} and ${NAME+word}';

/** A word that cannot be read. The message has the reason and a remedy, and no place. */
export class WordError extends Error {}

/** Splits at spaces outside of quotes. The words keep their quotes, for {@link expandWord}. */
export function scanWords(text: string, escape: string): { words: string[]; isClosed: boolean } {
  const words: string[] = [];
  let start = -1;
  let quote = '';
  for (let index = 0; index < text.length; index += 1) {
    const character = text[index] ?? '';
    if (quote === '' && /\s/u.test(character)) {
      if (start >= 0) words.push(text.slice(start, index));
      start = -1;
      continue;
    }
    if (start < 0) start = index;
    if (character === escape && quote !== "'") index += 1;
    else if (quote === '' && (character === '"' || character === "'")) quote = character;
    else if (character === quote) quote = '';
  }
  if (start >= 0) words.push(text.slice(start));
  return { words, isClosed: quote === '' };
}

/** Like {@link scanWords}. Throws {@link WordError} if a quote is not closed. */
export function splitWords(text: string, escape: string): string[] {
  const { words, isClosed } = scanWords(text, escape);
  if (isClosed) return words;
  throw new WordError('a quote is not closed; close it, or write an escape before it');
}

type Lookup = (name: string) => string | undefined;

interface Expanding {
  escape: string;
  lookup: Lookup;
}

/**
 * Removes quotes and escapes, and replaces variables, but not between single quotes. An unset variable is empty. Throws
 * {@link WordError} for syntax that is not supported, and for a word that is or becomes too long.
 */
export function expandWord(word: string, { escape, lookup }: Expanding): string {
  if (Buffer.byteLength(word) > MAX_WORD_BYTES)
    throw new WordError(`a word has more than ${MAX_WORD_BYTES} bytes; shorten it`);
  return new Expansion(word, { escape, lookup }).read();
}

/** Writes a word that {@link expandWord} leaves as it is, except for its variables. An escape before `$` stays one. */
export function escapeWord(word: string, escape: string): string {
  let text = '';
  for (let index = 0; index < word.length; index += 1) {
    const character = word[index] ?? '';
    const isEscape = character === escape && word[index + 1] !== '$';
    text += isEscape || character === '"' || character === "'" ? escape + character : character;
  }
  return text;
}

class Expansion {
  readonly #word: string;
  readonly #escape: string;
  readonly #lookup: Lookup;
  #at = 0;

  constructor(word: string, { escape, lookup }: Expanding) {
    this.#word = word;
    this.#escape = escape;
    this.#lookup = lookup;
  }

  read(): string {
    return this.#readTo('', 0);
  }

  /** Reads past the brace that ends an alternative, or, with an empty `end`, to the end of the word. */
  #readTo(end: '}' | '', depth: number): string {
    const text = new BoundedText();
    while (this.#at < this.#word.length) {
      const character = this.#word[this.#at] ?? '';
      if (character === end) {
        this.#at += 1;
        return text.value;
      }
      if (character === "'") text.add(this.#readSingleQuoted());
      else if (character === '"') text.add(this.#readDoubleQuoted(depth));
      else if (character === '$') text.add(this.#readVariable(depth));
      else if (character === this.#escape) {
        // One at the end of the word is dropped.
        text.add(this.#word[this.#at + 1] ?? '');
        this.#at += 2;
      } else {
        text.add(character);
        this.#at += 1;
      }
    }
    if (end !== '') throw unclosedBrace();
    return text.value;
  }

  #readSingleQuoted(): string {
    const end = this.#word.indexOf("'", this.#at + 1);
    if (end === -1)
      throw new WordError('a single quote is not closed; close it, or write an escape before it');
    const text = this.#word.slice(this.#at + 1, end);
    this.#at = end + 1;
    return text;
  }

  #readDoubleQuoted(depth: number): string {
    const text = new BoundedText();
    this.#at += 1;
    while (this.#at < this.#word.length) {
      const character = this.#word[this.#at] ?? '';
      if (character === '$') {
        text.add(this.#readVariable(depth));
        continue;
      }
      this.#at += 1;
      if (character === '"') return text.value;
      if (character !== this.#escape) {
        text.add(character);
        continue;
      }
      // Between double quotes an escape is only for characters that mean something there.
      const next = this.#word[this.#at] ?? '';
      if (next === '"' || next === '$' || next === this.#escape) {
        text.add(next);
        this.#at += 1;
      } else text.add(character);
    }
    throw new WordError('a double quote is not closed; close it, or write an escape before it');
  }

  #readVariable(depth: number): string {
    this.#at += 1;
    if (this.#word[this.#at] === '{') {
      this.#at += 1;
      return this.#readBraced(depth);
    }
    const name = this.#readName();
    return name === '' ? '$' : (this.#lookup(name) ?? '');
  }

  #readBraced(depth: number): string {
    const name = this.#readName();
    const value = this.#lookup(name);
    const found = this.#word[this.#at];
    if (found === undefined) throw unclosedBrace();
    if (name === '') throw new WordError(`\${ is followed by no name; supported are ${FORMS}`);
    this.#at += 1;
    if (found === '}') return value ?? '';
    const isColon = found === ':';
    const operator = isColon ? this.#word[this.#at] : found;
    if (operator !== '-' && operator !== '+')
      throw new WordError(
        `\${${name.slice(0, 64)}${isColon ? ':' : ''}${operator ?? ''}…} is not supported; supported are ${FORMS}`,
      );
    if (isColon) this.#at += 1;
    if (depth >= MAX_NESTED)
      throw new WordError(`more than ${MAX_NESTED} \${…} are within another; use ARG for some`);
    const alternative = this.#readTo('}', depth + 1);
    const isMissing = value === undefined || (isColon && value === '');
    if (operator === '-') return isMissing ? alternative : value;
    return isMissing ? '' : alternative;
  }

  #readName(): string {
    NAME.lastIndex = this.#at;
    const [name = ''] = NAME.exec(this.#word) ?? [];
    this.#at += name.length;
    return name;
  }
}

/** Text that is refused before it has more than its share of memory. */
class BoundedText {
  #value = '';

  get value(): string {
    if (Buffer.byteLength(this.#value) > MAX_WORD_BYTES) throw overlong();
    return this.#value;
  }

  add(piece: string): void {
    // A character has at least one byte.
    if (this.#value.length + piece.length > MAX_WORD_BYTES) throw overlong();
    this.#value += piece;
  }
}

function overlong(): WordError {
  return new WordError(
    `a word has more than ${MAX_WORD_BYTES} bytes once its variables are replaced; shorten them`,
  );
}

function unclosedBrace(): WordError {
  return new WordError('${ has no closing brace; close it, or write an escape before the $');
}
