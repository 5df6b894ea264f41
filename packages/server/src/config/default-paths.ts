/**
 * Where the service keeps its files unless told otherwise: root in the system's directories, an ordinary user in their
 * own, where nobody else may look.
 */
import { accessSync, chmodSync, constants, lstatSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';

const SYSTEM_DATA_DIR = '/var/lib/coppice';
const SYSTEM_RUN_DIR = '/run/coppice';
const MANIFEST = 'manifest.json';

export interface Paths {
  dataDir: string;
  runDir: string;
  assetsDir: string;
}

export interface GivenPaths {
  dataDir: string | undefined;
  runDir: string | undefined;
  assetsDir: string | undefined;
}

/** A directory of our own cannot be told or is somebody else's; the message names the setting. */
export class PathError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'PathError';
  }
}

export function choosePaths(given: GivenPaths, uid: number, environment: NodeJS.ProcessEnv): Paths {
  if (uid === 0) {
    return {
      dataDir: given.dataDir ?? SYSTEM_DATA_DIR,
      runDir: given.runDir ?? SYSTEM_RUN_DIR,
      assetsDir: given.assetsDir ?? join(SYSTEM_DATA_DIR, 'assets'),
    };
  }
  const dataDir = given.dataDir ?? join(userDataHome(environment), 'coppice');
  const runtime = environment['XDG_RUNTIME_DIR'] || `/tmp/coppice-${uid}`;
  return {
    dataDir,
    runDir: given.runDir ?? join(runtime, 'coppice'),
    assetsDir: given.assetsDir ?? chooseAssets(join(dataDir, 'assets')),
  };
}

function userDataHome(environment: NodeJS.ProcessEnv): string {
  const { XDG_DATA_HOME: dataHome, HOME: home } = environment;
  if (dataHome) return dataHome;
  if (home) return join(home, '.local', 'share');
  throw new PathError('COPPICE_DATA_DIR: has no default where neither HOME nor XDG_DATA_HOME is set; set it');
}

/** What root's set-up has built will do, if the user has built nothing. */
function chooseAssets(own: string): string {
  const system = join(SYSTEM_DATA_DIR, 'assets');
  return !isReadable(join(own, MANIFEST)) && isReadable(join(system, MANIFEST)) ? system : own;
}

export function isReadable(path: string): boolean {
  try {
    accessSync(path, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * Makes an ordinary user's directory with its parents, open to nobody else. In a directory that all may write, such as
 * /tmp, somebody else may have made it first: then what is in it would be theirs, and it is refused.
 */
export function ensurePrivateDirectory(setting: string, path: string, uid: number): void {
  const parent = dirname(path);
  // A parent in /tmp is as much at stake as the directory itself.
  if (dirname(parent) === '/tmp') ensureOwnDirectory(setting, parent, uid);
  else mkdirSync(parent, { recursive: true, mode: 0o700 });
  ensureOwnDirectory(setting, path, uid);
}

function ensureOwnDirectory(setting: string, path: string, uid: number): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'EEXIST') throw new PathError(`${setting}: ${path} cannot be made (${code ?? 'unknown'})`);
  }
  const found = lstatSync(path);
  if (!found.isDirectory()) throw new PathError(`${setting}: ${path} is not a directory`);
  if (found.uid !== uid)
    throw new PathError(
      `${setting}: ${path} belongs to another user (uid ${found.uid}); choose another directory`,
    );
  chmodSync(path, 0o700);
}
