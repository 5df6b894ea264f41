/** Where the lab keeps its hosts. Their disks hold passwords of registries and proxies, and keys. */
import { chmodSync, lstatSync, mkdirSync } from 'node:fs';
import { SetupError } from '../scripts/setup/setup-error.mjs';

/**
 * Made, or checked: in a directory that anybody may write to, somebody else may have been there first. Accounts of the tools
 * that fill a disk pass through it; nobody lists it.
 */
export function ensureOwnDirectory(path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o711 });
  const found = lstatSync(path);
  if (!found.isDirectory() || found.uid !== process.getuid?.())
    throw new SetupError(`${path} is not a directory of ours`, {
      remedy: 'remove it, or name another one with --directory',
    });
  chmodSync(path, 0o711);
}
