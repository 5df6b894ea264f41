import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { REPOSITORY } from '../setup/paths.mjs';
import { findServiceProgram } from '../setup/service-program.mjs';

/** @typedef {'all' | 'control' | 'runner'} Role  `all`: the supervisor with both */

/**
 * Each role's unit in systemd. A machine has that of `all`, or one or both of the others.
 * @type {Readonly<Record<Role, string>>}
 */
export const UNIT_NAMES = {
  all: 'coppice.service',
  control: 'coppice-control.service',
  runner: 'coppice-runner.service',
};
export const ROLES = /** @type {readonly Role[]} */ (Object.keys(UNIT_NAMES));

/**
 * @param {string} root
 * @param {Role} role
 */
export function unitPath(root, role) {
  return join(root, '/etc/systemd/system', UNIT_NAMES[role]);
}

/**
 * @param {string} node
 * @param {Role} role
 * @returns {Promise<string>} the unit of this checkout
 */
export async function buildUnit(node, role) {
  const main = await findServiceProgram();
  const template = await readFile(join(REPOSITORY, 'deploy', UNIT_NAMES[role]), 'utf8');
  return fillUnit(template, { node, main, repository: REPOSITORY });
}

/**
 * @param {string} template
 * @param {{ node: string, main: string, repository: string }} paths
 */
export function fillUnit(template, { node, main, repository }) {
  const [comment, ...sections] = template.split('\n\n');
  const body = sections
    .join('\n\n')
    .replaceAll('@NODE@', () => quoteWord(node))
    .replaceAll('@MAIN@', () => quoteWord(main))
    .replaceAll('@REPOSITORY@', () => encodeURI(repository).replaceAll('%', '%%'));
  return `${comment}\n\n${body}`;
}

/**
 * Quotes a word for a command line of systemd.service(5), which substitutes `%` and `$` and splits words at blanks.
 * @param {string} path
 */
function quoteWord(path) {
  const escaped = path
    .replaceAll('\\', '\\\\')
    .replaceAll('"', '\\"')
    .replaceAll('%', '%%')
    .replaceAll('$', '$$$$');
  return /[\s"'\\;]/u.test(path) ? `"${escaped}"` : escaped;
}
