/** Root's installations on this machine. Each service registers itself (packages/server/src/runner/host-ranges). */
import { existsSync, readdirSync, readlinkSync } from 'node:fs';
import { rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { INSTALLATIONS_DIR, networkSlug } from '../../packages/server/src/config/default-paths.mjs';

/**
 * @param {string} dataDir
 * @param {string} [directory]
 * @returns {string[]} data directories of other installations that still have data
 */
export function listOthers(dataDir, directory = INSTALLATIONS_DIR) {
  if (!existsSync(directory)) return [];
  return readdirSync(directory, { withFileTypes: true })
    .filter((entry) => entry.isSymbolicLink())
    .map(({ name }) => readlinkSync(join(directory, name)))
    .filter((other) => other !== dataDir && existsSync(join(other, 'runner')));
}

/**
 * Removes an installation from the list.
 * @param {string} dataDir
 * @param {import('./removal-report.mjs').RemovalReport} report
 * @param {string} [directory]
 */
export async function forgetInstallation(dataDir, report, directory = INSTALLATIONS_DIR) {
  const link = join(directory, networkSlug(dataDir));
  if (readLinkIfThere(link) !== dataDir) return;
  await rm(link);
  report.remove(link);
  if (readdirSync(directory).length === 0) await rmdir(directory);
}

/** @param {string} path */
function readLinkIfThere(path) {
  try {
    return readlinkSync(path);
  } catch {
    return undefined; // absent, or not a link: not an entry of a service
  }
}
