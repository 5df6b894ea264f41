/**
 * Which hosts "registry:npm", "registry:pypi" and "registry:crates" of network policies stand for: those that the package
 * clients of this machine are configured to use, a company's mirror included. A client that is not here, or does not
 * say, has none. Only host names are kept: addresses of registries may hold passwords.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { writeJson } from './json-file.mjs';
import { findNpm } from './npm-packages.mjs';
import { assetsDirectory, findExecutable } from './paths.mjs';
import { say } from './report.mjs';
import { run } from './run-command.mjs';

const FILE = 'package-registries.json';
const ASK_TIMEOUT_MS = 60_000;
/** pip has its standard built in, and tells it to nobody who asks by a command. */
const PIP_STANDARD = [
  'from pip._internal.models.index import PyPI',
  'print(PyPI.simple_url)',
  'print("https://" + PyPI.file_storage_domain)',
].join('\n');

/** @typedef {(command: string, args: string[]) => Promise<string | undefined>} Ask  its output; undefined if it failed */

/**
 * Writes down what the clients say; the service reads it at its next start. They are slow to ask: `again` asks although they
 * were asked before.
 * @param {{ again: boolean }} options
 */
export async function ensurePackageRegistries({ again }) {
  const path = join(assetsDirectory(), FILE);
  if (!again && existsSync(path)) return;
  const registries = {
    npm: await findNpmHosts(ask),
    pypi: await findPypiHosts(ask),
    crates: findCratesHosts(process.env['CARGO_HOME'] ?? join(homedir(), '.cargo')),
  };
  if (!(await writeJson(path, { version: 1, registries }))) return;
  const missing = Object.entries(registries).flatMap(([name, hosts]) => (hosts.length > 0 ? [] : [name]));
  if (missing.length > 0)
    say(
      `no client here says where its packages are: ${missing.join(', ')}; network profiles do not open them`,
    );
}

/**
 * @param {Ask} asked
 * @returns {Promise<string[]>}
 */
export async function findNpmHosts(asked) {
  const text = await asked(...npmCommand());
  /** @type {Record<string, unknown>} */
  const config = parseObject(text ?? '');
  const names = Object.keys(config).filter((name) => name === 'registry' || /^@[^:]+:registry$/u.test(name));
  return listHosts(names.map((name) => config[name]));
}

/** @returns {[string, string[]]} */
function npmCommand() {
  const args = ['config', 'list', '--json'];
  try {
    const npm = findNpm();
    return [npm.command, [...npm.args, ...args]];
  } catch {
    return ['npm', args]; // which is not there: nobody answers
  }
}

/**
 * @param {Ask} asked
 * @returns {Promise<string[]>}
 */
export async function findPypiHosts(asked) {
  const configured = readPipConfig((await asked('python3', ['-m', 'pip', 'config', 'list'])) ?? '');
  const indexes = configured.filter(({ key }) => key === 'index-url');
  const extra = configured.filter(({ key }) => key === 'extra-index-url');
  const standard = indexes.length > 0 ? '' : ((await asked('python3', ['-c', PIP_STANDARD])) ?? '');
  const texts = [...indexes, ...extra].flatMap(({ value }) => value.split(/\s+/u));
  return listHosts([...texts, ...standard.split('\n')]);
}

/**
 * Lines such as `global.index-url='https://…'` and `:env:.index-url='https://…'`.
 * @param {string} text
 */
function readPipConfig(text) {
  return [...text.matchAll(/^[^=]*\.(?<key>[a-z-]+)=(?<quote>['"])(?<value>.*)\k<quote>$/gmu)].map(
    ({ groups = {} }) => ({
      key: groups['key'] ?? '',
      value: (groups['value'] ?? '').replaceAll(String.raw`\n`, ' '),
    }),
  );
}

/**
 * What stands in cargo's configuration in place of its own registry, and what it has written down of the registries that
 * it has used.
 * @param {string} home  cargo's
 * @returns {string[]}
 */
export function findCratesHosts(home) {
  const configured = ['config.toml', 'config'].flatMap((name) => readCargoConfig(join(home, name)));
  return listHosts(configured.length > 0 ? configured : readCargoIndexes(join(home, 'registry', 'index')));
}

/**
 * Values of `registry` in `[source.…]` and of `index` in `[registries.…]`: all of TOML that is of use here.
 * @param {string} path
 * @returns {string[]}
 */
function readCargoConfig(path) {
  if (!existsSync(path)) return [];
  let section = '';
  return readFileSync(path, 'utf8')
    .split('\n')
    .flatMap((line) => {
      section = /^\s*\[(?<name>[^\]]+)\]/u.exec(line)?.groups?.['name']?.trim() ?? section;
      const { key, value } =
        /^\s*(?<key>registry|index)\s*=\s*["'](?<value>[^"']+)["']/u.exec(line)?.groups ?? {};
      const isSource = key === 'registry' && section.startsWith('source.');
      const isRegistry = key === 'index' && section.startsWith('registries.');
      return value !== undefined && (isSource || isRegistry) ? [value] : [];
    });
}

/**
 * Directories such as `<host>-<16 hex digits>`; in each is where its downloads are.
 * @param {string} directory
 * @returns {string[]}
 */
function readCargoIndexes(directory) {
  if (!existsSync(directory)) return [];
  return readdirSync(directory).flatMap((name) => {
    const host = /^(?<host>.+)-[0-9a-f]{16}$/u.exec(name)?.groups?.['host'];
    const config = join(directory, name, 'config.json');
    if (host === undefined || !existsSync(config)) return [];
    const { dl } = parseObject(readFileSync(config, 'utf8'));
    return [`https://${host}`, typeof dl === 'string' ? dl : ''];
  });
}

/**
 * @param {unknown[]} addresses
 * @returns {string[]} in order, each once
 */
function listHosts(addresses) {
  const hosts = addresses.flatMap((address) => {
    if (typeof address !== 'string' || address === '') return [];
    const host = findHost(address.trim().replace(/^(?:sparse|registry|git)\+/u, ''));
    return host === '' ? [] : [host.replace(/^\[|\]$/gu, '')];
  });
  return [...new Set(hosts)];
}

/**
 * @param {string} address
 * @returns {string} empty for none
 */
function findHost(address) {
  try {
    return new URL(address).hostname;
  } catch {
    return '';
  }
}

/**
 * @param {string} text
 * @returns {Record<string, unknown>} empty for what is no JSON object
 */
function parseObject(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}

/** @type {Ask} */
async function ask(command, args) {
  const path = command.includes('/') ? command : findExecutable(command);
  if (path === undefined) return undefined;
  const options = { step: 'asking for package registries', timeoutMs: ASK_TIMEOUT_MS, allowFailure: true };
  try {
    // Not in the project, whose own settings are nobody else's.
    const { exitCode, stdout } = await run(path, args, { ...options, cwd: '/' });
    return exitCode === 0 ? stdout : undefined;
  } catch {
    return undefined; // it cannot be started or does not end: as if it were not here
  }
}
