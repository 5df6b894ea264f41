import { join } from 'node:path';
import { REPOSITORY } from '../../../scripts/setup/paths.mjs';
import { runTypeScript } from './run-typescript.mjs';

const COMMAND = join(REPOSITORY, 'packages', 'server', 'src', 'image-command.ts');

/**
 * The service's own code.
 * @param {string[]} args
 * @returns {Promise<number>} exit code
 */
export async function image(args) {
  return runTypeScript('image', COMMAND, args);
}
