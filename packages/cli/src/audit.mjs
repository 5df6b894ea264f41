import { fileURLToPath } from 'node:url';
import { runTypeScript } from './run-typescript.mjs';

const COMMAND = fileURLToPath(new URL('audit-command.ts', import.meta.url));

/**
 * @param {string[]} args
 * @returns {Promise<number>} exit code
 */
export async function audit(args) {
  return runTypeScript('audit', COMMAND, args);
}
