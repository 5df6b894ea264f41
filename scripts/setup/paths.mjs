import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import util from 'node:util';
import { SetupError } from './setup-error.mjs';

export const REPOSITORY = resolve(fileURLToPath(new URL('../..', import.meta.url)));

/**
 * A setting from where the service reads it: the environment, else the configuration file.
 * @param {string} name
 * @param {string} standard
 * @returns {string}
 */
export function readSetting(name, standard) {
  return process.env[name] ?? readConfigurationFile()[name] ?? standard;
}

/** @type {NodeJS.Dict<string> | undefined} */
let configurationFile;

function readConfigurationFile() {
  configurationFile ??= parseConfigurationFile(process.env['COPPICE_CONFIG'] ?? '/etc/coppice/coppice.env');
  return configurationFile;
}

/**
 * @param {string} path
 * @returns {NodeJS.Dict<string>}
 */
function parseConfigurationFile(path) {
  if (!existsSync(path)) return {};
  if (util.parseEnv === undefined)
    throw new SetupError(`Node.js ${process.versions.node} cannot read ${path}`, {
      remedy: 'use Node.js 20.12 or newer',
    });
  return util.parseEnv(readFileSync(path, 'utf8'));
}

/** @returns {string} where everything that set-up builds is kept */
export function assetsDirectory() {
  return resolve(readSetting('COPPICE_ASSETS_DIR', '/var/lib/coppice/assets'));
}

/** @returns {string} */
export function dataDirectory() {
  return resolve(readSetting('COPPICE_DATA_DIR', '/var/lib/coppice'));
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
  const directories = [
    ...(process.env['PATH'] ?? '').split(delimiter).filter((part) => part.startsWith('/')),
    ...SYSTEM_DIRECTORIES,
  ];
  return directories.map((directory) => join(directory, name)).find(isExecutable);
}

/** @returns {string} PATH with the system's directories at its end */
export function completePath() {
  return [...new Set([...(process.env['PATH'] ?? '').split(delimiter), ...SYSTEM_DIRECTORIES])]
    .filter(Boolean)
    .join(delimiter);
}
