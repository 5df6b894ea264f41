import { UsageError } from '../output/failure.ts';

/** One end of a copy. */
export type Place =
  | { kind: 'local'; path: string }
  | { kind: 'sandbox'; sandbox: string; path: string }
  /** Standard input or output. */
  | { kind: 'stream' };

const IN_SANDBOX = /^([^:/]+):(.*)$/su;

/** Parses `sandbox:path`, a local path, or `-`. A local path with a colon needs a slash before it: `./a:b`. */
export function parsePlace(text: string): Place {
  if (text === '-') return { kind: 'stream' };
  const match = IN_SANDBOX.exec(text);
  if (match?.[1] === undefined) return { kind: 'local', path: text };
  const path = match[2] ?? '';
  if (path === '') throw new UsageError(`${text}: name a path in the sandbox, such as ${text}/workspace`);
  return { kind: 'sandbox', sandbox: match[1], path };
}

/** Returns the last name of a path. Throws UsageError for a path without one, such as `/` and `..`. */
export function lastName(path: string): string {
  const name = path.split('/').findLast((part) => part !== '' && part !== '.');
  if (name !== undefined && name !== '..') return name;
  throw new UsageError(`${path}: name a file or directory, or the destination by its full name`);
}

/** Returns whether a source means the content of a directory rather than the directory: `.` and `app/.` do. */
export function meansContent(path: string): boolean {
  return /(?:^|\/)\.$/u.test(path);
}

/** Joins a directory and a name in a sandbox. */
export function joinPath(directory: string, name: string): string {
  return `${directory.replace(/\/+$/u, '')}/${name}`;
}
