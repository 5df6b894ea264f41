/** Absolute paths in a sandbox. Names are any bytes but `/`, so nothing else is special. */

export interface Crumb {
  name: string;
  path: string;
}

export function joinPath(directory: string, name: string): string {
  return `${directory.replace(/\/+$/u, '')}/${name}`;
}

/** Returns the directory of a path; that of `/` is `/`. */
export function parentOf(path: string): string {
  const trimmed = path.replace(/\/+$/u, '');
  return trimmed.slice(0, trimmed.lastIndexOf('/')) || '/';
}

export function nameOf(path: string): string {
  const trimmed = path.replace(/\/+$/u, '');
  return trimmed.slice(trimmed.lastIndexOf('/') + 1);
}

/** Returns the directories from `/` down to a path, with the path itself. */
export function listCrumbs(path: string): readonly Crumb[] {
  const names = path.split('/').filter((name) => name !== '');
  return [
    { name: '/', path: '/' },
    ...names.map((name, index) => ({ name, path: `/${names.slice(0, index + 1).join('/')}` })),
  ];
}

/** Returns a name for the archive of a directory. Browsers refuse names with control characters or separators. */
export function archiveNameOf(name: string): string {
  const safe = name.replaceAll(/[\p{C}\p{Zl}\p{Zp}"*/:<>?\\|~]/gu, '_').replace(/^\.+/u, '');
  return `${Array.from(safe).slice(0, MAX_ARCHIVE_NAME).join('') || 'folder'}.tar.gz`;
}

/** Explains why a text cannot be the name of a file; undefined if it can. */
export function findNameFault(name: string): string | undefined {
  if (name === '') return undefined;
  if (name.includes('/')) return 'A name cannot contain a slash.';
  if (name === '.' || name === '..') return 'This name stands for a directory that exists.';
  if (name.includes('\0')) return 'A name cannot contain a zero byte.';
  if (new TextEncoder().encode(name).length > MAX_NAME_BYTES)
    return `A name has at most ${MAX_NAME_BYTES} bytes.`;
  return undefined;
}

const MAX_NAME_BYTES = 255;
const MAX_ARCHIVE_NAME = 50;
