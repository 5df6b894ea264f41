/** Rules of a .dockerignore: the last rule that matches a path decides, and a rule also matches all below a directory. */

interface Rule {
  pattern: RegExp;
  isException: boolean;
}

/** Tells whether the context leaves out a path, relative and with slashes. */
type IsIgnored = (path: string) => boolean;

export interface IgnoreRules {
  isIgnored: IsIgnored;
  /** Whether a file below an ignored directory may still belong to the context. */
  hasExceptions: boolean;
}

export function parseIgnoreFile(text: string): IgnoreRules {
  const rules = text
    .split(/\r?\n/u)
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map(parseRule);
  return {
    isIgnored: (path) => {
      const last = rules.findLast(({ pattern }) => pattern.test(path));
      return last !== undefined && !last.isException;
    },
    hasExceptions: rules.some(({ isException }) => isException),
  };
}

function parseRule(line: string): Rule {
  const isException = line.startsWith('!');
  const path = (isException ? line.slice(1) : line)
    .trim()
    .split('/')
    .filter((part) => part !== '' && part !== '.');
  let pattern = '';
  for (const [index, part] of path.entries()) {
    if (part === '**') pattern += index === path.length - 1 ? '.*' : '(?:.*/)?';
    else pattern += `${translate(part)}${index === path.length - 1 ? '' : '/'}`;
  }
  return { pattern: new RegExp(`^${pattern}(?:/.*)?$`, 'su'), isException };
}

function translate(part: string): string {
  return part
    .replaceAll(/[.+^${}()|\\]/gu, String.raw`\$&`)
    .replaceAll('*', '[^/]*')
    .replaceAll('?', '[^/]');
}
