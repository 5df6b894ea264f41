/** Directories of an ordinary user, in places that others may write to as well. */
import { chmodSync, lstatSync, mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { PathError } from './default-paths.mjs';

/**
 * Makes an ordinary user's directory with its parents, open to nobody else. In a directory that all may write, such as
 * /tmp, somebody else may have made it first: then what is in it would be theirs, and it is refused.
 */
export function ensurePrivateDirectory(setting: string, path: string, uid: number): void {
  const parent = dirname(path);
  // A parent in /tmp is as much at stake as the directory itself.
  if (dirname(parent) === '/tmp') ensureOwnDirectory(setting, parent, uid);
  else mkdirSync(parent, { recursive: true, mode: 0o700 });
  ensureOwnDirectory(setting, path, uid);
}

function ensureOwnDirectory(setting: string, path: string, uid: number): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'EEXIST') throw new PathError(`${setting}: ${path} cannot be made (${code ?? 'unknown'})`);
  }
  const found = lstatSync(path);
  if (!found.isDirectory()) throw new PathError(`${setting}: ${path} is not a directory`);
  if (found.uid !== uid)
    throw new PathError(
      `${setting}: ${path} belongs to another user (uid ${found.uid}); choose another directory`,
    );
  chmodSync(path, 0o700);
}
