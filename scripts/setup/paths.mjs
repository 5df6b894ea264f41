import { accessSync, constants } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const REPOSITORY = resolve(fileURLToPath(new URL('../..', import.meta.url)));

/** @returns {string} where everything that set-up builds is kept */
export function assetsDirectory() {
  return resolve(process.env['COPPICE_ASSETS_DIR'] || '/var/lib/coppice/assets');
}

/** @returns {string} */
export function dataDirectory() {
  return resolve(process.env['COPPICE_DATA_DIR'] || '/var/lib/coppice');
}

export function manifestPath() {
  return join(assetsDirectory(), 'manifest.json');
}

/** A root shell made by `su` has no sbin in its PATH, and that is where mke2fs and nft are. */
const SYSTEM_DIRECTORIES = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];

/** @param {string} path */
export function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false; // absent or not ours to run: both mean "look elsewhere"
  }
}

/**
 * @param {string} name
 * @returns {string | undefined} absolute path
 */
export function findExecutable(name) {
  const directories = [...(process.env['PATH'] ?? '').split(delimiter).filter((part) => part.startsWith('/')), ...SYSTEM_DIRECTORIES];
  return directories.map((directory) => join(directory, name)).find(isExecutable);
}

/** @returns {string} PATH with the system's directories at its end */
export function completePath() {
  return [...new Set([...(process.env['PATH'] ?? '').split(delimiter), ...SYSTEM_DIRECTORIES])].filter(Boolean).join(delimiter);
}
