/**
 * The rules of a .dockerignore, as `docker build` reads them: the last rule that matches a file decides. A rule that matches
 * a directory also matches everything below it.
 */
import { posix } from 'node:path';
import { Failure } from '../output/failure.ts';
import { IgnorePattern, PatternError } from './ignore-pattern.ts';

const MAX_FILE_BYTES = 1 << 20;

interface Rule {
  pattern: IgnorePattern;
  isException: boolean;
}

/** The verdicts on a path. Files and directories in a directory need them. */
export interface Verdict {
  isIgnored: boolean;
  /** For each rule, whether it matches. */
  matches: readonly boolean[];
}

export class IgnoreRules {
  readonly #rules: readonly Rule[];

  constructor(rules: readonly Rule[]) {
    this.#rules = rules;
  }

  /** Judges a path, relative and with slashes. `above` is the verdict of its directory, unless that is the context itself. */
  judge(path: string, above: Verdict | undefined): Verdict {
    const characters = Array.from(path);
    let isIgnored = false;
    const matches = this.#rules.map(({ pattern, isException }, index) => {
      // As in Docker, a rule that could change nothing for a directory is asked again below it.
      const isMatch =
        above?.matches[index] === true || (isException === isIgnored && pattern.matches(characters));
      if (isMatch) isIgnored = !isException;
      return isMatch;
    });
    return { isIgnored, matches };
  }

  /** Returns whether an ignored directory may have files that belong to the context. */
  hasExceptionsBelow(directory: string): boolean {
    const prefix = Array.from(`${directory}/`);
    return this.#rules.some(({ pattern, isException }) => isException && pattern.mayMatchBelow(prefix));
  }
}

/** Parses the text of the file `name`. Throws Failure with the line that is no rule. */
export function parseIgnoreFile(text: string, name: string): IgnoreRules {
  if (Buffer.byteLength(text) > MAX_FILE_BYTES)
    throw new Failure(`${name} has more than ${MAX_FILE_BYTES} bytes`);
  const rules: Rule[] = [];
  for (const [index, line] of text
    .replace(/^\u{feff}/u, '')
    .split('\n')
    .entries()) {
    try {
      const rule = line.startsWith('#') ? undefined : parseRule(line.trim());
      if (rule !== undefined) rules.push(rule);
    } catch (error) {
      if (!(error instanceof PatternError)) throw error;
      throw new Failure(`${name}, line ${index + 1}: "${line.trim()}" is no pattern: ${error.message}`, {
        cause: error,
      });
    }
  }
  return new IgnoreRules(rules);
}

/** Returns undefined for an empty line. */
function parseRule(line: string): Rule | undefined {
  if (line === '') return undefined;
  const isNegated = line.startsWith('!');
  const cleaned = cleanPath(isNegated ? line.slice(1).trim() : line);
  // Docker looks for the exclamation mark only now, so "./!a" is an exception, too.
  const isException = isNegated || cleaned.startsWith('!');
  const text = isNegated || !isException ? cleaned : cleaned.slice(1);
  if (text === '' || (isException && text === '/')) throw new PatternError('nothing follows the "!"');
  return { pattern: new IgnorePattern(text), isException };
}

/** Returns the shortest form of a path: relative to the context, without `.`, `..` and a slash at its end. */
function cleanPath(path: string): string {
  if (path === '') return '';
  const normal = posix.normalize(path);
  if (normal === '/') return normal;
  return normal.replace(/^\//u, '').replace(/\/$/u, '');
}
