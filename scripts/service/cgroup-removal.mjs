import { existsSync, readdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

const ROOT = '/sys/fs/cgroup';
/** Controller, slice, scope, container, service and more; a tree deeper than that is not searched. */
const SEARCH_DEPTH = 8;
const REMOVE_TIMEOUT_MS = 5_000;
const REMOVE_POLL_MS = 20;

/**
 * Control groups of an installation, in every hierarchy, wherever the service stood when it made them. They are empty
 * by now: the kernel removes no other.
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
