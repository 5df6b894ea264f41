import { join } from 'node:path';
import { REPOSITORY } from '../../../scripts/setup/paths.mjs';
import { runTypeScript } from './run-typescript.mjs';

const COMMAND = join(REPOSITORY, 'packages', 'server', 'src', 'master-key-command.ts');

/**
 * @param {string[]} args
 * @returns {Promise<number>} exit code
 */
export function masterKey(args) {
  return runTypeScript('master-key', COMMAND, args);
}
