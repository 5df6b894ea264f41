/**
 * Chooses PostgreSQL's packages, and keeps them from making a database. On its first installation, Debian's package of
 * a PostgreSQL server makes a cluster `main` and starts it on port 5432. postgresql-common's own setting,
 * `create_main_cluster` in a directory for additional files, prevents both. Clusters that exist are not affected.
 */
import { existsSync, rmdirSync, rmSync } from 'node:fs';
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { configurePending, findCandidate } from './apt.mjs';
import { findExecutable } from '../paths.mjs';
import { findDataMajor } from '../postgres.mjs';
import { run } from '../run-command.mjs';
import { withoutServiceStarts } from './service-guard.mjs';
import { SetupError } from '../setup-error.mjs';

const COMMON = '/etc/postgresql-common';
const CONFIGURATION = 'createcluster.conf';
/** Read last: the files of the directory are read in the order of their names. */
const GUARD = join('createcluster.d', 'zz-coppice.conf');
const GUARD_MARK = '# Written by the Coppice set-up for the time of one installation; safe to delete.';
export const GUARD_TEXT = `${GUARD_MARK}\ncreate_main_cluster = false\n`;
export const GUARD_PATH = join(COMMON, GUARD);
const TIMEOUT_MS = 20_000;

/**
 * Returns the package of one major version: that of the data directory, else the release's. The metapackage
 * `postgresql` would bring another major version with the next release of the distribution.
 * @returns {Promise<string[]>}
 */
export async function choosePostgresPackages() {
  const made = findDataMajor();
  if (made !== undefined && (await findCandidate(`postgresql-${made}`)) !== undefined)
    return [`postgresql-${made}`];
  const depends = (await findCandidate('postgresql'))?.depends ?? '';
  return [/\bpostgresql-\d+\b/.exec(depends)?.[0] ?? 'postgresql'];
}

/**
 * Runs an installation during which no package makes a cluster. The setting stays if the installation fails or is
 * interrupted: the packages may be unpacked by then, and would make the cluster when apt completes them.
 * @template T
 * @param {() => Promise<T>} install
 * @param {string} [common] directory of postgresql-common's configuration
 * @returns {Promise<T>}
 */
export async function withoutMainCluster(install, common = COMMON) {
  const guard = join(common, GUARD);
  for (const directory of [common, dirname(guard)].filter((path) => !existsSync(path))) {
    await mkdir(directory);
    await chmod(directory, 0o755); // independent of the umask: the package keeps the mode
  }
  await writeFile(guard, GUARD_TEXT, { mode: 0o644 });
  await assertRead(common);
  const result = await install();
  await removeGuard(common);
  return result;
}

/** Completes an installation of PostgreSQL that was interrupted: its programs may be there, but not configured yet. */
export async function finishGuardedInstallation() {
  if (!existsSync(GUARD_PATH)) return;
  await withoutServiceStarts(configurePending);
  await removeGuard();
}

/**
 * Removes the setting if set-up wrote it.
 * @param {string} [common]
 * @returns {Promise<boolean>} whether it was there
 */
export async function removeGuard(common = COMMON) {
  const guard = join(common, GUARD);
  if (!existsSync(guard) || !(await readFile(guard, 'utf8')).startsWith(GUARD_MARK)) return false;
  rmSync(guard);
  for (const directory of [dirname(guard), common]) {
    try {
      rmdirSync(directory);
    } catch {
      break; // not empty: the package or its owner uses it
    }
  }
  return true;
}

/**
 * Refuses to install beside a configuration that does not read the directory: its owner changed it.
 * @param {string} common
 */
async function assertRead(common) {
  const configuration = join(common, CONFIGURATION);
  const tool = findExecutable('pg_conftool');
  if (tool === undefined || !existsSync(configuration)) return; // the package will write its own, which reads it
  const { stdout } = await run(tool, ['-bs', configuration, 'show', 'create_main_cluster'], {
    step: `reading ${configuration}`,
    timeoutMs: TIMEOUT_MS,
    allowFailure: true,
  });
  if (stdout.trim() === 'off') return;
  await removeGuard(common);
  throw new SetupError(
    `${configuration} lets the package of PostgreSQL make and start a database that Coppice does not need`,
    { remedy: `set create_main_cluster = false in it, or install PostgreSQL yourself` },
  );
}
