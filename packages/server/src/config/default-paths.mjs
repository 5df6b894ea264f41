/**
 * The default directories of an installation and its name on the host. Files of root's service are in the system's
 * directories, those of an ordinary user in that user's own. This is plain JavaScript, because the scripts of set-up
 * and removal need the same answers and run in the user's Node.js, which may not support TypeScript.
 */
import { createHash } from 'node:crypto';
import { accessSync, constants } from 'node:fs';
import { join, resolve } from 'node:path';

/** Settings file of root's services, unless COPPICE_CONFIG names another one. */
export const CONFIGURATION_FILE = '/etc/coppice/coppice.env';
export const SYSTEM_DATA_DIR = '/var/lib/coppice';
/** Parts that root's set-up built, for every installation on the machine. */
export const SYSTEM_ASSETS_DIR = join(SYSTEM_DATA_DIR, 'assets');
/** Links to the data directories of root's installations on this machine, each named by its slug. */
export const INSTALLATIONS_DIR = join(SYSTEM_DATA_DIR, 'installations');
const SYSTEM_RUNTIME_DIR = '/run';
const NAME = 'coppice';
const MANIFEST = 'manifest.json';

/**
 * @typedef {object} Paths
 * @property {string} dataDir
 * @property {string} runDir
 * @property {string} assetsDir
 *
 * @typedef {{ [Name in keyof Paths]: string | undefined }} GivenPaths
 */

/** A directory of the service has no default or belongs to another user; the message names the setting. */
export class PathError extends Error {
  /** @param {string} message */
  constructor(message) {
    super(message);
    this.name = 'PathError';
  }
}

/**
 * @param {GivenPaths} given
 * @param {number} uid
 * @param {NodeJS.Dict<string>} environment
 * @returns {Paths} all absolute
 */
export function choosePaths(given, uid, environment) {
  const standard = uid === 0 ? SYSTEM_DATA_DIR : findUserDataDir(environment);
  const chosen = given.dataDir ?? standard;
  if (chosen === undefined)
    throw new PathError(
      'COPPICE_DATA_DIR: has no default, because neither HOME nor XDG_DATA_HOME is set; set one of the three',
    );
  const dataDir = resolve(chosen);
  const name = dataDir === standard ? NAME : `${NAME}-${networkSlug(dataDir)}`;
  return {
    dataDir,
    runDir: resolve(given.runDir ?? join(findRuntimeDir(uid, environment), name)),
    assetsDir: resolve(
      given.assetsDir ?? (uid === 0 ? SYSTEM_ASSETS_DIR : chooseAssets(ownAssetsDir(dataDir))),
    ),
  };
}

/** Settings of one installation: two that share one of these would share secrets or conflict with each other. */
const OF_ONE_INSTALLATION = new Set([
  'COPPICE_BOOTSTRAP_INVITATION',
  'COPPICE_BOOTSTRAP_KEY',
  'COPPICE_GUEST_CIDR',
  'COPPICE_INTERNAL_LISTEN',
  'COPPICE_METRICS_TOKEN',
  'COPPICE_OBJECT_STORE',
  'COPPICE_RUNNER_LISTEN',
  'COPPICE_RUN_DIR',
  'COPPICE_UID_BASE',
  'DATABASE_URL',
]);

/**
 * Selects the settings of a configuration file that apply in an environment. If the environment names another data
 * directory than the machine's own file, it is another service and gets only settings that services may share.
 * @param {NodeJS.Dict<string>} file
 * @param {NodeJS.Dict<string>} environment
 * @returns {NodeJS.Dict<string>}
 */
export function selectSettings(file, environment) {
  const { COPPICE_CONFIG: named, COPPICE_DATA_DIR: dataDir } = environment;
  const fileDataDir = file['COPPICE_DATA_DIR'] ?? SYSTEM_DATA_DIR;
  const isMeant = named !== undefined || dataDir === undefined || resolve(dataDir) === resolve(fileDataDir);
  if (isMeant) return file;
  return Object.fromEntries(Object.entries(file).filter(([name]) => !isOfOneInstallation(name)));
}

/** @param {string} name */
function isOfOneInstallation(name) {
  // A collector would get the traces of tests together with those of the machine's own service.
  return OF_ONE_INSTALLATION.has(name) || name.startsWith('OTEL_');
}

/**
 * Returns the slug in the names of an installation's TAPs, nftables tables, control groups and run directories. It
 * distinguishes several installations on one host.
 * @param {string} dataDir
 * @returns {string} four hex digits
 */
export function networkSlug(dataDir) {
  return createHash('sha256').update(dataDir).digest('hex').slice(0, 4);
}

/**
 * Returns the directory in which an ordinary user's set-up builds.
 * @param {string} dataDir
 */
export function ownAssetsDir(dataDir) {
  return join(dataDir, 'assets');
}

/** @param {string} path */
export function isReadable(path) {
  try {
    accessSync(path, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

/** @param {NodeJS.Dict<string>} environment */
function findUserDataDir({ XDG_DATA_HOME: dataHome, HOME: home }) {
  if (dataHome) return join(dataHome, NAME);
  return home ? join(home, '.local', 'share', NAME) : undefined;
}

/**
 * @param {number} uid
 * @param {NodeJS.Dict<string>} environment
 */
function findRuntimeDir(uid, environment) {
  return uid === 0 ? SYSTEM_RUNTIME_DIR : environment['XDG_RUNTIME_DIR'] || `/tmp/${NAME}-${uid}`;
}

/**
 * Chooses the parts that root's set-up built if the user has built none.
 * @param {string} own
 */
function chooseAssets(own) {
  const isOnlyThere = !isReadable(join(own, MANIFEST)) && isReadable(join(SYSTEM_ASSETS_DIR, MANIFEST));
  return isOnlyThere ? SYSTEM_ASSETS_DIR : own;
}
