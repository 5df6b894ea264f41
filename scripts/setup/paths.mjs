import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import util from 'node:util';
import {
  choosePaths,
  CONFIGURATION_FILE,
  isReadable,
  ownAssetsDir,
  selectSettings,
} from '../../packages/server/src/config/default-paths.mjs';
import { SetupError } from './setup-error.mjs';

export { isReadable };

export const REPOSITORY = resolve(fileURLToPath(new URL('../..', import.meta.url)));

/**
 * Reads a setting as the service does: from the environment, else from the configuration file.
 * @param {string} name
 * @param {string} standard value of an unset setting
 * @returns {string}
 */
export function readSetting(name, standard) {
  return findSetting(name) ?? standard;
}

/**
 * @param {string} name
 * @returns {string | undefined}
 */
export function findSetting(name) {
  return process.env[name] ?? readConfigurationFile()[name];
}

/** @type {NodeJS.Dict<string> | undefined} */
let configurationFile;

function readConfigurationFile() {
  const path = process.env['COPPICE_CONFIG'] ?? CONFIGURATION_FILE;
  configurationFile ??= selectSettings(parseConfigurationFile(path), process.env);
  return configurationFile;
}

/**
 * @param {string} path
 * @returns {NodeJS.Dict<string>} empty if the file does not exist, or if an ordinary user cannot read the system's file
 */
export function parseConfigurationFile(path) {
  if (!existsSync(path)) return {};
  // The system's file has secrets, and only root may read it. An ordinary user's service has another configuration.
  if (!isRoot() && process.env['COPPICE_CONFIG'] === undefined && !isReadable(path)) return {};
  if (util.parseEnv === undefined)
    throw new SetupError(`Node.js ${process.versions.node} cannot read ${path}`, {
      remedy: 'use Node.js 20.12 or newer',
    });
  return util.parseEnv(readFileSync(path, 'utf8'));
}

export function isRoot() {
  return process.getuid?.() === 0;
}

/** @returns {string} directory of everything that set-up builds */
export function assetsDirectory() {
  const { dataDir, assetsDir } = readPaths();
  return isRoot() || findSetting('COPPICE_ASSETS_DIR') !== undefined ? assetsDir : ownAssetsDir(dataDir);
}

/** @returns {string} */
export function dataDirectory() {
  return readPaths().dataDir;
}

/** @returns {string} */
export function runDirectory() {
  return readPaths().runDir;
}

/** Returns the directories that the service uses. */
function readPaths() {
  const given = {
    dataDir: findSetting('COPPICE_DATA_DIR'),
    runDir: findSetting('COPPICE_RUN_DIR'),
    assetsDir: findSetting('COPPICE_ASSETS_DIR'),
  };
  const home = process.env['HOME'] || homedir();
  return choosePaths(given, process.getuid?.() ?? 0, { ...process.env, HOME: home });
}

export function manifestPath() {
  return join(assetsDirectory(), 'manifest.json');
}

/** Searched after PATH: a root shell from `su` has no sbin in its PATH, but mke2fs and nft are there. */
const SYSTEM_DIRECTORIES = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];

/** @param {string} path */
export function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false; // absent or not executable: both mean "look elsewhere"
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

/** @returns {string} PATH, extended by the system's directories */
export function completePath() {
  return [...new Set([...(process.env['PATH'] ?? '').split(delimiter), ...SYSTEM_DIRECTORIES])]
    .filter(Boolean)
    .join(delimiter);
}
