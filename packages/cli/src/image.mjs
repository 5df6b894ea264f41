import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { getNode } from '../../../scripts/setup/node-runtime.mjs';
import { REPOSITORY } from '../../../scripts/setup/paths.mjs';
import { describeError } from '../../../scripts/setup/setup-error.mjs';

const COMMAND = join(REPOSITORY, 'packages', 'server', 'src', 'image-command.ts');

/**
 * The service's own code, in its own Node.js: this command may have been started by an older one.
 * @param {string[]} args
 * @returns {Promise<number>} exit code
 */
export async function image(args) {
  /** @type {string} */
  let node;
  try {
    node = getNode();
  } catch (error) {
    process.stderr.write(`coppice image: ${describeError(error)}\n`);
    return 1;
  }
  const child = spawn(node, ['--disable-warning=ExperimentalWarning', COMMAND, ...args], {
    stdio: 'inherit',
  });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => resolve(code ?? 1));
  });
}
