/**
 * Finds the hosts that "registry:npm", "registry:pypi" and "registry:crates" of network policies stand for: the public
 * registry, as built into its client, and the registries that this machine's clients are configured to use, such as a
 * company's mirror. This project contains no such host. Only host names are stored: addresses may hold passwords.
 */
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { writeJson } from '../json-file.mjs';
import { getNode } from '../node-runtime.mjs';
import { assetsDirectory, findExecutable } from '../paths.mjs';
import { ask, listHosts, parseObject } from './ask-client.mjs';
import { readFromPackage } from './client-package.mjs';
import {
  askCargoForDownloads,
  CARGO_PACKAGE,
  findBuiltInIndex,
  findCratesMirrors,
  readDownloads,
} from './crates-registry.mjs';
import { findNpmMirrors, findNpmStandard } from './npm-registry.mjs';
import { findPypiMirrors, findPypiStandard, PIP_PACKAGE, readPipSource } from './pypi-registry.mjs';
import { say } from '../report.mjs';

const FILE = 'package-registries.json';
/** Raise this when the code finds other hosts on the same machine: the next set-up then asks the clients again. */
const RULES = 2;
const NAMES = /** @type {const} */ (['npm', 'pypi', 'crates']);
const FETCH = `const answer = await fetch(process.argv[1], { signal: AbortSignal.timeout(10_000) });
if (!answer.ok) throw new Error(String(answer.status));
process.stdout.write(await answer.text());`;

/**
 * Access to clients and network, which tests replace.
 * @typedef {object} Means
 * @property {import('./ask-client.mjs').Ask} ask
 * @property {(wanted: { name: string, file: RegExp }) => Promise<Buffer | undefined>} readFromPackage
 * @property {() => Promise<Buffer | undefined>} readCargo  the installed program
 * @property {(address: string) => Promise<string | undefined>} fetchText
 * @property {string} cargoHome
 *
 * Public hosts of a registry. If some were not found, `problem` is a remedy, or the error.
 * @typedef {{ hosts: string[], problem?: string }} Standard
 * @typedef {'npm' | 'pypi' | 'crates'} Name
 * @typedef {Partial<Record<Name, string[]>>} Standards
 */

/**
 * Writes the hosts to a file that the service reads at its next start. Clients are slow to query: they are queried
 * again only with `again` or `refresh`. Known public hosts are looked up again only with `refresh`, so that without it
 * no host is contacted.
 * @param {{ again: boolean, refresh: boolean }} options
 */
export async function ensurePackageRegistries({ again, refresh }) {
  const path = join(assetsDirectory(), FILE);
  const known = readKnown(path);
  if (!again && !refresh && known !== undefined) return;
  const { file, problems } = await findRegistries(await getMeans(), { known, refresh });
  await writeJson(path, { version: 1, rules: RULES, ...file });
  for (const [name, problem] of problems)
    say(`network profiles do not open all hosts of ${name}: ${problem}. Then run npm run setup again`);
}

/**
 * @param {string} path
 * @returns {Standards | undefined} undefined if the file was written under other rules
 */
function readKnown(path) {
  if (!existsSync(path)) return undefined;
  const { rules, standards } = parseObject(readFileSync(path, 'utf8'));
  return rules === RULES ? (standards ?? {}) : undefined;
}

/**
 * @param {Means} means
 * @param {{ known?: Standards | undefined, refresh?: boolean }} before  `known`: complete sets of public hosts
 */
export async function findRegistries(means, { known = {}, refresh = false } = {}) {
  /** @param {Name} name */
  const standardOf = (name) => findStandard(name, means, { known: known[name], refresh });
  const [npmMirrors, pypiMirrors, npm, pypi, crates] = await Promise.all([
    findNpmMirrors(means.ask),
    findPypiMirrors(means.ask),
    standardOf('npm'),
    standardOf('pypi'),
    standardOf('crates'),
  ]);
  const mirrors = { npm: npmMirrors, pypi: pypiMirrors, crates: findCratesMirrors(means.cargoHome) };
  const standards = { npm, pypi, crates };
  const complete = NAMES.filter((name) => standards[name].problem === undefined);
  return {
    file: {
      registries: Object.fromEntries(
        NAMES.map((name) => [name, [...new Set([...standards[name].hosts, ...mirrors[name]])]]),
      ),
      incomplete: NAMES.filter((name) => !complete.includes(name)),
      standards: Object.fromEntries(complete.map((name) => [name, standards[name].hosts])),
    },
    problems: NAMES.flatMap((name) => {
      const { problem } = standards[name];
      return problem === undefined ? [] : [/** @type {const} */ ([name, problem])];
    }),
  };
}

const FIND = { npm: findNpm, pypi: findPypi, crates: findCrates };

/**
 * @param {Name} name
 * @param {Means} means
 * @param {{ known: string[] | undefined, refresh: boolean }} before
 * @returns {Promise<Standard>}
 */
async function findStandard(name, means, { known, refresh }) {
  /** @type {Standard} */
  let found;
  try {
    found = await FIND[name](means, refresh ? undefined : known);
  } catch (error) {
    found = {
      hosts: [],
      problem: (error instanceof Error ? error.message : String(error)).split('\n', 1)[0] ?? '',
    };
  }
  return found.problem !== undefined && known !== undefined ? { hosts: known } : found;
}

/**
 * @param {Means} means
 * @returns {Promise<Standard>}
 */
async function findNpm(means) {
  const hosts = await findNpmStandard(means.ask);
  return hosts.length > 0 ? { hosts } : { hosts, problem: 'install npm' };
}

/**
 * @param {Means} means
 * @param {string[] | undefined} known
 * @returns {Promise<Standard>}
 */
async function findPypi(means, known) {
  const told = await findPypiStandard(means.ask);
  if (told.length > 0) return { hosts: told };
  if (known !== undefined) return { hosts: known };
  const source = await means.readFromPackage(PIP_PACKAGE);
  const hosts = source === undefined ? [] : readPipSource(source.toString('utf8'));
  return hosts.length > 0 ? { hosts } : { hosts, problem: `install ${PIP_PACKAGE.name}` };
}

/**
 * @param {Means} means
 * @param {string[] | undefined} known
 * @returns {Promise<Standard>}
 */
async function findCrates(means, known) {
  const installed = await means.readCargo();
  const own = installed && findBuiltInIndex(installed);
  if (own === undefined && known !== undefined) return { hosts: known };
  const index = own ?? (await findPackagedIndex(means));
  const [host] = listHosts([index]);
  if (host === undefined) return { hosts: [], problem: `install ${CARGO_PACKAGE.name}` };
  if (known?.includes(host) === true) return { hosts: known };
  const byCargo = own === undefined ? [] : await askCargoForDownloads(means.ask, host);
  const downloads =
    byCargo.length > 0 ? byCargo : readDownloads((await means.fetchText(`${index}config.json`)) ?? '');
  const hosts = [...new Set([host, ...downloads])];
  return downloads.length > 0 ? { hosts } : { hosts, problem: `let this machine reach ${host}` };
}

/**
 * @param {Means} means
 * @returns {Promise<string | undefined>}
 */
async function findPackagedIndex(means) {
  const program = await means.readFromPackage(CARGO_PACKAGE);
  return program && findBuiltInIndex(program);
}

/** @returns {Promise<Means>} */
async function getMeans() {
  return {
    ask,
    readFromPackage,
    readCargo: async () => {
      // rustup's cargo only starts the real one.
      const path =
        (await ask('rustup', ['which', 'cargo'], { RUSTUP_AUTO_INSTALL: '0' }))?.trim() ??
        findExecutable('cargo');
      return path === undefined ? undefined : readFile(realpathSync(path));
    },
    // A new process with the machine's proxies and certificate authorities, which this process's fetch does not use.
    fetchText: (address) =>
      ask(getNode(), ['--use-system-ca', '--input-type=module', '-e', FETCH, address], {
        NODE_USE_ENV_PROXY: '1',
      }),
    cargoHome: process.env['CARGO_HOME'] ?? join(homedir(), '.cargo'),
  };
}
