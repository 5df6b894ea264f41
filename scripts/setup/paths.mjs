import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
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
  // The system's own holds secrets and is root's; an ordinary user's service has another configuration.
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

/** Where root's set-up builds; an ordinary user's uses what is there. */
export const SYSTEM_ASSETS = '/var/lib/coppice/assets';

/** @returns {string} where everything that set-up builds is kept */
export function assetsDirectory() {
  return resolve(
    readSetting('COPPICE_ASSETS_DIR', isRoot() ? SYSTEM_ASSETS : join(dataDirectory(), 'assets')),
  );
}

/** @returns {string} */
export function dataDirectory() {
  return resolve(readSetting('COPPICE_DATA_DIR', isRoot() ? '/var/lib/coppice' : userData()));
}

/** @returns {string} */
export function runDirectory() {
  const ofUser = () =>
    join(process.env['XDG_RUNTIME_DIR'] || `/tmp/coppice-${process.getuid?.()}`, 'coppice');
  return resolve(readSetting('COPPICE_RUN_DIR', isRoot() ? '/run/coppice' : ofUser()));
}

function userData() {
  return join(process.env['XDG_DATA_HOME'] || join(homedir(), '.local', 'share'), 'coppice');
}

export function manifestPath() {
  return join(assetsDirectory(), 'manifest.json');
}

/** A root shell made by `su` has no sbin in its PATH, and that is where mke2fs and nft are. */
const SYSTEM_DIRECTORIES = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];

/** @param {string} path */
export function isExecutable(path) {
  return mayAccess(path, constants.X_OK);
}

/** @param {string} path */
export function isReadable(path) {
  return mayAccess(path, constants.R_OK);
}

/**
 * @param {string} path
 * @param {number} mode
 */
function mayAccess(path, mode) {
  try {
    accessSync(path, mode);
    return true;
  } catch {
    return false; // absent or not ours: both mean "look elsewhere"
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
