import { join } from 'node:path';
import { REPOSITORY } from '../../../scripts/setup/paths.mjs';
import { runTypeScript } from './run-typescript.mjs';

const COMMAND = join(REPOSITORY, 'packages', 'server', 'src', 'organization-command.ts');

/**
 * @param {string[]} args
 * @returns {Promise<number>} exit code
 */
export function organization(args) {
  return runTypeScript('organization', COMMAND, args);
}
