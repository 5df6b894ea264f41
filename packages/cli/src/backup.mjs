import { join } from 'node:path';
import { REPOSITORY } from '../../../scripts/setup/paths.mjs';
import { runTypeScript } from './run-typescript.mjs';

const COMMAND = join(REPOSITORY, 'packages', 'server', 'src', 'backup-command.ts');

/**
 * @param {string[]} args
 * @returns {Promise<number>} exit code
 */
export function backup(args) {
  return runTypeScript('backup', COMMAND, ['backup', ...args]);
}

/**
 * @param {string[]} args
 * @returns {Promise<number>} exit code
 */
export function restore(args) {
  return runTypeScript('restore', COMMAND, ['restore', ...args]);
}
