import { spawn } from 'node:child_process';
import { getNode } from '../../../../scripts/setup/node-runtime.mjs';
import { describeError } from '../../../../scripts/setup/setup-error.mjs';

/**
 * Runs a subcommand written in TypeScript in the project's own Node.js, because this command may run in an older
 * Node.js.
 * @param {string} name  of the subcommand, for messages
 * @param {string} path  of its file
 * @param {string[]} args
 * @returns {Promise<number>} exit code
 */
export async function runTypeScript(name, path, args) {
  /** @type {string} */
  let node;
  try {
    node = getNode();
  } catch (error) {
    process.stderr.write(`coppice ${name}: ${describeError(error)}\n`);
    return 1;
  }
  const child = spawn(node, ['--disable-warning=ExperimentalWarning', path, ...args], { stdio: 'inherit' });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => resolve(code ?? 1));
  });
}
