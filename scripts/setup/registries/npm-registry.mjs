import { findNpm } from '../packages/npm-packages.mjs';
import { listHosts, parseObject } from './ask-client.mjs';

/** @typedef {import('./ask-client.mjs').Ask} Ask */

/** Two different paths, because npm refuses to read one file as two configurations. */
const UNCONFIGURED = ['--userconfig=/nonexistent/user', '--globalconfig=/nonexistent/global'];

/**
 * Finds the hosts that npm is configured to use, including those of scopes.
 * @param {Ask} asked
 * @returns {Promise<string[]>}
 */
export async function findNpmMirrors(asked) {
  const [command, ...args] = npmCommand();
  const config = parseObject((await asked(command, [...args, 'config', 'list', '--json'])) ?? '');
  const names = Object.keys(config).filter((name) => name === 'registry' || /^@[^:]+:registry$/u.test(name));
  return listHosts(names.map((name) => config[name]));
}

/**
 * Finds the hosts that npm uses without any configuration.
 * @param {Ask} asked
 * @returns {Promise<string[]>}
 */
export async function findNpmStandard(asked) {
  const [command, ...args] = npmCommand();
  const variables = Object.keys(process.env).filter((name) => /^npm_config_(?:.*:)?registry$/iu.test(name));
  const env = Object.fromEntries(variables.map((name) => [name, undefined]));
  return listHosts([await asked(command, [...args, 'config', 'get', 'registry', ...UNCONFIGURED], env)]);
}

/** @returns {[string, ...string[]]} */
function npmCommand() {
  try {
    const { command, args } = findNpm();
    return [command, ...args];
  } catch {
    return ['npm']; // it is not installed, so `ask` returns undefined
  }
}
