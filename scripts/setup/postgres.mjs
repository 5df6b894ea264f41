/**
 * Finds the programs of the service's own PostgreSQL: those of COPPICE_POSTGRES_BIN, else one of the versions that the
 * distribution's packages installed. A data directory belongs to the major version that made it, so that version is
 * preferred over newer ones.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expandPattern } from './expand-pattern.mjs';
import { assetsDirectory, dataDirectory, findSetting, isExecutable, readSetting } from './paths.mjs';
import { run } from './run-command.mjs';

export const MINIMUM_MAJOR = 15;
const INSTALLED = '/usr/lib/postgresql/*/bin';
const PROGRAMS = ['postgres', 'initdb', 'pg_ctl'];
const VERSION_TIMEOUT_MS = 20_000;
const GUIDE = 'docs/guides/backup.md';

/** @typedef {Omit<import('./prerequisites.mjs').Finding, 'prerequisite'>} Found */

/** @param {string} directory */
export function hasPrograms(directory) {
  return PROGRAMS.every((name) => isExecutable(join(directory, name)));
}

/** @returns {Promise<Found>} `path` is the directory of the programs; absent if the service needs none */
export async function inspectPostgres() {
  const configured = readSetting('COPPICE_POSTGRES_BIN', '');
  if (configured !== '') return inspectConfigured(resolve(configured));
  const bin = chooseInstalled(findDataMajor());
  if (bin !== undefined) return inspectPrograms(bin);
  if (readSetting('DATABASE_URL', '') !== '')
    return { ok: true, detail: 'not installed, and not needed: DATABASE_URL is set' };
  return { ok: false, detail: `no version ${MINIMUM_MAJOR} or newer is installed` };
}

/**
 * @param {string} directory
 * @returns {Promise<Found>}
 */
async function inspectConfigured(directory) {
  const remedy = 'set it to a directory such as /usr/lib/postgresql/15/bin, or unset it';
  if (!hasPrograms(directory)) {
    const detail = `COPPICE_POSTGRES_BIN=${directory} does not hold ${PROGRAMS.join(', ')}`;
    return { ok: false, detail, remedy };
  }
  const found = await inspectPrograms(directory);
  return found.ok ? found : { ...found, detail: `COPPICE_POSTGRES_BIN: ${found.detail}`, remedy };
}

/**
 * @param {string} directory
 * @returns {Promise<Found>}
 */
async function inspectPrograms(directory) {
  const version = await readVersion(directory);
  if (version === undefined) return { ok: false, detail: `${directory}/postgres does not print its version` };
  const ok = Number(majorOf(version)) >= MINIMUM_MAJOR;
  const detail = `${version} (${directory})${ok ? '' : ` is older than ${MINIMUM_MAJOR}`}`;
  return { ok, path: directory, version, detail };
}

/**
 * @param {string | undefined} dataMajor
 * @param {string} [pattern]
 * @returns {string | undefined} directory of programs
 */
export function chooseInstalled(dataMajor, pattern = INSTALLED) {
  const complete = expandPattern(pattern).filter(
    (directory) => Number(directoryMajor(directory)) >= MINIMUM_MAJOR && hasPrograms(directory),
  );
  return complete.find((directory) => directoryMajor(directory) === dataMajor) ?? complete[0];
}

/** @param {string} directory `/usr/lib/postgresql/15/bin` */
function directoryMajor(directory) {
  return /\/(\d+)[^/]*\/bin$/.exec(directory)?.[1] ?? '0';
}

/**
 * @param {string} directory
 * @returns {Promise<string | undefined>} such as 15.18
 */
async function readVersion(directory) {
  const path = join(directory, 'postgres');
  const { stdout } = await run(path, ['--version'], {
    step: `asking ${path} for its version`,
    timeoutMs: VERSION_TIMEOUT_MS,
    allowFailure: true,
  });
  return /\(PostgreSQL\) (\d+(?:\.\d+)*)/.exec(stdout)?.[1];
}

/** @param {string} version */
function majorOf(version) {
  return version.split('.', 1)[0] ?? '';
}

function dataPath() {
  return join(dataDirectory(), 'control', 'postgres');
}

/** @returns {string | undefined} major version that made the service's own database; undefined if there is none */
export function findDataMajor() {
  // With the operator's own PostgreSQL, files of an earlier one are not used.
  if ((findSetting('DATABASE_URL') ?? '') !== '') return undefined;
  try {
    return readFileSync(join(dataPath(), 'PG_VERSION'), 'utf8').trim();
  } catch {
    return undefined; // absent, or another user's
  }
}

/**
 * Compares the database with the programs that set-up has chosen.
 * @param {string | undefined} bin their directory
 * @returns {Promise<{ detail: string, remedy: string } | undefined>} undefined if they fit
 */
export async function findMismatch(bin) {
  const made = findDataMajor();
  if (made === undefined || bin === undefined || !hasPrograms(bin)) return undefined;
  const version = await readVersion(bin);
  if (version === undefined || majorOf(version) === made) return undefined;
  const fitting = await findPrograms(made);
  const first = fitting === undefined ? `install PostgreSQL ${made}, then run` : 'run';
  return {
    detail: `${dataPath()} was made by PostgreSQL ${made}, and the service does not start with ${version}`,
    remedy:
      `${first} COPPICE_POSTGRES_BIN=${fitting ?? `/usr/lib/postgresql/${made}/bin`} npm run setup to keep ${made}; ` +
      `${GUIDE} moves the data to ${majorOf(version)}`,
  };
}

/**
 * Finds programs of a major version, installed or among the copies of earlier set-ups.
 * @param {string} major
 */
async function findPrograms(major) {
  for (const directory of [...expandPattern(INSTALLED), ...listCopies()].filter(hasPrograms))
    if (majorOf((await readVersion(directory)) ?? '') === major) return directory;
  return undefined;
}

/** Lists the copies of an npm package that earlier versions of set-up made, and that set-up makes for tests. */
function listCopies() {
  const parent = join(assetsDirectory(), 'postgres');
  return existsSync(parent) ? readdirSync(parent).map((name) => join(parent, name, 'bin')) : [];
}
