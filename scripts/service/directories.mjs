import { existsSync, lstatSync, readdirSync, readFileSync, rmdirSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';

/**
 * Names that the service and set-up create in their directories. All other entries belong to other programs or people.
 */
export const DATA_ENTRIES = ['control', 'runner'];
export const RUN_ENTRIES = ['runner.sock', 'control', 'v', 't', 'b'];
export const ASSETS_ENTRIES = [
  'agent',
  'api-tests',
  'base-image',
  'blocks',
  'capture',
  'dashboard',
  'docs',
  'hostctl',
  'initramfs',
  'jail',
  'kernel',
  'object-server',
  'postgres',
  'runtimes',
  'manifest.json',
  'manifest.json.new',
  'package-registries.json',
  '.lock',
];

/**
 * Removes known entries of a directory, and the directory if nothing else is in it.
 * @param {string} directory
 * @param {readonly string[]} entries
 * @param {import('./removal-report.mjs').RemovalReport} report
 */
export async function removeEntries(directory, entries, report) {
  if (!existsSync(directory) || lstatSync(directory).isSymbolicLink()) {
    if (existsSync(directory))
      report.leave(`${directory}: this is a symbolic link, and the service did not make it`);
    return;
  }
  const mounts = listMountPoints(readFileSync('/proc/self/mountinfo', 'latin1'));
  for (const path of entries.map((name) => join(directory, name)).filter(existsSync)) {
    const mounted = mounts.find((mount) => mount === path || mount.startsWith(`${path}/`));
    if (mounted === undefined) {
      await rm(path, { recursive: true, force: true });
      report.remove(path);
    } else report.leave(`${path}: ${mounted} is mounted there; unmount it, then run this again`);
  }
  removeIfEmpty(directory, report);
}

/**
 * @param {string} directory
 * @param {import('./removal-report.mjs').RemovalReport} report
 */
function removeIfEmpty(directory, report) {
  const others = readdirSync(directory);
  if (others.length > 0) {
    report.leave(`${directory}: holds ${others.slice(0, 5).join(', ')}${others.length > 5 ? ', …' : ''}`);
    return;
  }
  try {
    rmdirSync(directory);
    report.remove(directory);
  } catch (error) {
    report.leave(`${directory}: ${error instanceof Error ? error.message : String(error)}`); // a mount point
  }
}

/**
 * Returns the paths of all mount points: the removal of a tree must never follow a bind mount into other files.
 * @param {string} mountinfo of proc(5)
 * @returns {string[]}
 */
export function listMountPoints(mountinfo) {
  return mountinfo
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .filter(Boolean)
    .map((path) =>
      path.replaceAll(/\\(\d{3})/gu, (_, digits) => String.fromCodePoint(Number.parseInt(digits, 8))),
    );
}
