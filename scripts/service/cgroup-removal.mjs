import { existsSync, readdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

const ROOT = '/sys/fs/cgroup';
/** Levels that are searched: controller, slice, scope, container, service and some more. */
const SEARCH_DEPTH = 8;
const REMOVE_TIMEOUT_MS = 5_000;
const REMOVE_POLL_MS = 20;

/**
 * Removes the control groups of an installation from every hierarchy, wherever in it the service ran when it made them.
 * They must be empty: the kernel removes no others.
 * @param {string} slug
 * @param {import('./removal-report.mjs').RemovalReport} report
 * @param {string} [root]
 */
export async function removeCgroups(slug, report, root = ROOT) {
  const names = new Set([`coppice_${slug}`, `coppice_${slug}_service`]);
  for (const directory of findGroups(root, names, SEARCH_DEPTH)) {
    try {
      await removeGroup(directory);
      report.remove(`control group ${directory}`);
    } catch (error) {
      report.leave(`control group ${directory}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
}

/**
 * @param {string} directory
 * @param {ReadonlySet<string>} names
 * @param {number} depth
 * @returns {string[]}
 */
function findGroups(directory, names, depth) {
  if (depth === 0) return [];
  return listGroups(directory).flatMap((name) => {
    const path = join(directory, name);
    return names.has(name) ? [path] : findGroups(path, names, depth - 1);
  });
}

/** @param {string} directory */
async function removeGroup(directory) {
  for (const name of listGroups(directory)) await removeGroup(join(directory, name));
  const end = performance.now() + REMOVE_TIMEOUT_MS;
  for (;;) {
    try {
      rmdirSync(directory);
      return;
    } catch (error) {
      // The kernel may need a moment to notice that the last process has left.
      if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'EBUSY' || performance.now() > end)
        throw error;
      await delay(REMOVE_POLL_MS);
    }
  }
}

/** @param {string} directory */
function listGroups(directory) {
  if (!existsSync(directory)) return [];
  return readdirSync(directory, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name);
}
