import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findExecutable, REPOSITORY } from '../paths.mjs';
import { say } from '../report.mjs';
import { run } from '../run-command.mjs';
import { SetupError } from '../setup-error.mjs';

const INSTALL_TIMEOUT_MS = 20 * 60_000;

/**
 * @typedef {object} LockedPackage
 * @property {string} [version]
 * @property {string} [integrity]
 * @property {boolean} [link]
 * @property {boolean} [optional]
 * @property {string[]} [os]
 * @property {string[]} [cpu]
 * @property {string[]} [libc]
 * @property {Record<string, string>} [dependencies]
 * @property {Record<string, string>} [devDependencies]
 * @property {Record<string, string>} [optionalDependencies]
 * @property {Record<string, string>} [peerDependencies]
 * @typedef {{ packages?: Record<string, LockedPackage> }} Lockfile
 */

/** Runs `npm ci` if node_modules differs from package-lock.json. Otherwise it only reads these two lock files. */
export async function ensureNpmPackages() {
  const difference = await findDifference();
  if (difference === undefined) return;
  say(`installing npm packages (${difference})`);
  const npm = findNpm();
  await run(
    npm.command,
    [
      ...npm.args,
      'ci',
      '--prefer-offline',
      '--loglevel=error',
      '--no-audit',
      '--no-fund',
      '--include=dev',
      '--include=optional',
    ],
    {
      step: 'npm ci',
      timeoutMs: INSTALL_TIMEOUT_MS,
      cwd: REPOSITORY,
      remedy: `npm must reach its registry (npm config get registry) or have the packages in its cache: ${difference}`,
      // If npm started this process, its variables for that script would override the project's settings.
      env: {
        ...Object.fromEntries(npmVariables().map((name) => [name, undefined])),
        NODE_ENV: 'development',
      },
    },
  );
  const remaining = await findDifference();
  if (remaining !== undefined) {
    throw new SetupError(`npm ci succeeded, but ${remaining}`, {
      remedy: 'check that npm is not configured to omit optional packages (npm config get omit)',
    });
  }
}

/** Returns the variables by which an npm that started this process would override settings of another one. */
export function npmVariables() {
  return Object.keys(process.env).filter((name) => /^npm_(package|lifecycle|command)_?/.test(name));
}

export function findNpm() {
  const started = process.env['npm_execpath'];
  if (started !== undefined && started.endsWith('npm-cli.js') && existsSync(started))
    return { command: process.execPath, args: [started] };
  const npm = findExecutable('npm');
  if (npm === undefined)
    throw new SetupError('npm is missing', {
      remedy: 'apt-get install npm, or install Node.js with its npm',
    });
  return { command: npm, args: [] };
}

/** @returns {Promise<string | undefined>} the first thing that differs, for people */
export async function findDifference() {
  const wanted = await readLockfile(join(REPOSITORY, 'package-lock.json'));
  if (wanted === undefined)
    throw new SetupError('package-lock.json is missing', { remedy: 'restore it from the repository' });
  const installed = await readLockfile(join(REPOSITORY, 'node_modules', '.package-lock.json'));
  return installed === undefined ? 'none are installed' : compareLockfiles(wanted, installed);
}

/**
 * @param {string} path
 * @returns {Promise<Lockfile | undefined>}
 */
async function readLockfile(path) {
  if (!existsSync(path)) return undefined;
  return JSON.parse(await readFile(path, 'utf8'));
}

/**
 * Describes the first difference. npm lists the packages that it installed in node_modules/.package-lock.json; packages
 * for other platforms are not in it.
 * @param {Lockfile} wanted
 * @param {Lockfile} installed
 * @returns {string | undefined}
 */
export function compareLockfiles(wanted, installed) {
  const packages = wanted.packages ?? {};
  const leftOut = findLeftOut(packages);
  for (const [path, entry] of Object.entries(packages)) {
    if (!path.includes('node_modules/')) continue;
    const name = nameOf(path);
    const found = installed.packages?.[path];
    if (found === undefined) {
      if (leftOut.has(path)) continue;
      return `${name} is missing`;
    }
    if (
      found.version !== entry.version ||
      (entry.integrity !== undefined && found.integrity !== entry.integrity)
    ) {
      return `${name} is ${found.version}, should be ${entry.version}`;
    }
  }
  return undefined;
}

/** @param {string} path in node_modules */
function nameOf(path) {
  return path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
}

/**
 * Finds packages that npm does not install here: optional ones for other platforms, and packages that only those need.
 * @param {Record<string, LockedPackage>} packages
 * @returns {Set<string>} paths
 */
function findLeftOut(packages) {
  const optional = Object.entries(packages).filter(([, entry]) => entry.optional === true);
  const leftOut = new Set(optional.filter(([, entry]) => !fitsPlatform(entry)).map(([path]) => path));
  for (let size = -1; size !== leftOut.size;) {
    size = leftOut.size;
    for (const [path] of optional) {
      const dependents = findDependents(packages, nameOf(path));
      if (dependents.length > 0 && dependents.every((dependent) => leftOut.has(dependent))) leftOut.add(path);
    }
  }
  return leftOut;
}

/**
 * @param {Record<string, LockedPackage>} packages
 * @param {string} name
 * @returns {string[]} paths
 */
function findDependents(packages, name) {
  return Object.entries(packages)
    .filter(([, entry]) =>
      [entry.dependencies, entry.devDependencies, entry.optionalDependencies, entry.peerDependencies].some(
        (dependencies) => dependencies !== undefined && Object.hasOwn(dependencies, name),
      ),
    )
    .map(([path]) => path);
}

/** @param {LockedPackage} entry */
function fitsPlatform(entry) {
  return (
    accepts(entry.os, process.platform) && accepts(entry.cpu, process.arch) && accepts(entry.libc, 'glibc')
  );
}

/**
 * @param {string[] | undefined} list names, or names with `!` in front
 * @param {string} value
 */
function accepts(list, value) {
  if (list === undefined) return true;
  return list.includes(value) || (!list.includes(`!${value}`) && list.every((name) => name.startsWith('!')));
}
