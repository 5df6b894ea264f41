import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { findCommandLine } from '../../../../scripts/setup/command-line.mjs';
import { findNode } from '../../../../scripts/setup/node-runtime.mjs';
import { REPOSITORY } from '../../../../scripts/setup/paths.mjs';
import { describeError } from '../../../../scripts/setup/setup-error.mjs';

const MAIN = join(REPOSITORY, 'packages', 'cli', 'src', 'main.ts');

/**
 * Finds the user's commands in a checkout: the sources if this Node.js can run TypeScript, else the build of set-up. Prints
 * the remedy if there is none.
 * @returns {Promise<string | undefined>} address of the module
 */
export async function findUserProgram() {
  if (findNode() === process.execPath) return pathToFileURL(MAIN).href;
  try {
    return pathToFileURL(await findCommandLine()).href;
  } catch (error) {
    process.stderr.write(`coppice: ${describeError(error)}\n`);
    return undefined;
  }
}
