import { listHosts } from './ask-client.mjs';

/** @typedef {import('./ask-client.mjs').Ask} Ask */

/** Prints the registry that is built into pip: pip has no command for that. */
const STANDARD = [
  'from pip._internal.models.index import PyPI',
  'print(PyPI.simple_url)',
  'print("https://" + PyPI.file_storage_domain)',
].join('\n');

/** The file with the same addresses in a package of pip. */
export const PIP_PACKAGE = { name: 'python3-pip', file: /\/pip\/_internal\/models\/index\.py$/u };

/**
 * Finds the hosts that pip is configured to use.
 * @param {Ask} asked
 * @returns {Promise<string[]>}
 */
export async function findPypiMirrors(asked) {
  const configured = readPipConfig((await asked('python3', ['-m', 'pip', 'config', 'list'])) ?? '');
  const indexes = ['index-url', 'extra-index-url'].flatMap((name) =>
    configured.filter(({ key }) => key === name),
  );
  return listHosts(indexes.flatMap(({ value }) => value.split(/\s+/u)));
}

/**
 * Parses lines such as `global.index-url='https://…'` and `:env:.index-url='https://…'`.
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
 * Finds the hosts that pip uses without any configuration.
 * @param {Ask} asked
 * @returns {Promise<string[]>}
 */
export async function findPypiStandard(asked) {
  return listHosts(((await asked('python3', ['-c', STANDARD])) ?? '').split('\n'));
}

/**
 * @param {string} source  text of pip's module with its built-in registry
 * @returns {string[]}
 */
export function readPipSource(source) {
  const call =
    /PyPI = PackageIndex\(\s*["'](?<index>[^"']+)["'],\s*(?:file_storage_domain=)?["'](?<files>[^"']+)["']/u;
  const { index, files } = call.exec(source)?.groups ?? {};
  return files === undefined ? [] : listHosts([index, `https://${files}`]);
}
