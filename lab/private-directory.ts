/** The directory of the lab's hosts. Their disks hold keys, and passwords of registries and proxies. */
import { chmodSync, lstatSync, mkdirSync } from 'node:fs';
import { SetupError } from '../scripts/setup/setup-error.mjs';

/**
 * Creates the directory, or checks who owns it: in a parent that all users may write to, another user may have created
 * it. Throws SetupError then. Mode 0711: tools that fill a disk pass through it under other accounts; none lists it.
 */
export function ensureOwnDirectory(path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o711 });
  const found = lstatSync(path);
  if (!found.isDirectory() || found.uid !== process.getuid?.())
    throw new SetupError(`${path} is not a directory of this user`, {
      remedy: 'remove it, or use another one with --directory',
    });
  chmodSync(path, 0o711);
}
