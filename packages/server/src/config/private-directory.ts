/** Private directories of an ordinary user, in places to which others may also write. */
import { chmodSync, lstatSync, mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { PathError } from './default-paths.mjs';

/**
 * Creates an ordinary user's directory with its parents, closed to other users. In a world-writable directory such as
 * /tmp another user may have created it first and would own its contents; such a directory is refused with PathError.
 */
export function ensurePrivateDirectory(setting: string, path: string, uid: number): void {
  const parent = dirname(path);
  // Another user may also have created the parent, if that is in /tmp.
  if (dirname(parent) === '/tmp') ensureOwnDirectory(setting, parent, uid);
  else mkdirSync(parent, { recursive: true, mode: 0o700 });
  ensureOwnDirectory(setting, path, uid);
}

function ensureOwnDirectory(setting: string, path: string, uid: number): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'EEXIST')
      throw new PathError(`${setting}: ${path} cannot be created (${code ?? 'unknown'})`);
  }
  const found = lstatSync(path);
  if (!found.isDirectory()) throw new PathError(`${setting}: ${path} is not a directory`);
  if (found.uid !== uid)
    throw new PathError(
      `${setting}: ${path} belongs to another user (uid ${found.uid}); choose another directory`,
    );
  chmodSync(path, 0o700);
}
