import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { REPOSITORY } from '../setup/paths.mjs';
import { findServiceProgram } from '../setup/service-program.mjs';

export const UNIT_NAME = 'coppice.service';
export const UNIT_PATH = `/etc/systemd/system/${UNIT_NAME}`;
const TEMPLATE = join(REPOSITORY, 'deploy', UNIT_NAME);

/**
 * @param {string} node
 * @returns {Promise<string>} the unit of this checkout
 */
export async function buildUnit(node) {
  const main = await findServiceProgram();
  const template = await readFile(TEMPLATE, 'utf8');
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
