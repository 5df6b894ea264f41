/**
 * Builds the user's commands of `coppice` into one file of JavaScript, in `packages/cli/dist/<recipe hash>.<when>`, because
 * the Node.js of the machine may be too old for their sources.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureArtefact, findBuild } from './artefact.mjs';
import { sourceHash } from './hash.mjs';
import { REPOSITORY } from './paths.mjs';
import { say } from './report.mjs';
import { run } from './run-command.mjs';
import { SetupError } from './setup-error.mjs';

const BUILDS = join(REPOSITORY, 'packages', 'cli', 'dist');
const BUILDER = join(REPOSITORY, 'packages', 'cli', 'build-user-program.mjs');
const PROGRAM = 'coppice.mjs';
const BUILD_TIMEOUT_MS = 2 * 60_000;

/** @param {string} path relative to `packages` */
function isSource(path) {
  const isCode = /^(?:cli|sdk)\/src\/.*\.ts$/u.test(path) && !/\.test\.|\/testing\//u.test(path);
  return isCode || path === 'cli/build-user-program.mjs';
}

async function buildRecipe() {
  const packages = await readFile(join(REPOSITORY, 'package-lock.json'), 'utf8');
  return { version: 1, source: await sourceHash(join(REPOSITORY, 'packages'), isSource), packages };
}

/**
 * @param {string} node
 * @returns {Promise<string>} path of the program
 */
export async function ensureCommandLine(node) {
  const directory = await ensureArtefact({
    parent: BUILDS,
    recipe: await buildRecipe(),
    build: async (target) => {
      say('building the command line');
      const [builder, file] = [BUILDER, join(target, PROGRAM)].map((path) => JSON.stringify(path));
      const program = `import { buildUserProgram } from ${builder}; await buildUserProgram(${file});`;
      await run(node, ['--input-type=module', '--eval', program], {
        step: 'building the command line',
        timeoutMs: BUILD_TIMEOUT_MS,
      });
    },
  });
  return join(directory, PROGRAM);
}

/** @returns {Promise<string>} path of the program built from the current sources; throws SetupError if there is none */
export async function findCommandLine() {
  const directory = await findBuild(BUILDS, await buildRecipe());
  if (directory === undefined)
    throw new SetupError(
      'this Node.js cannot run the command line from its sources, and it is not built from them',
      { remedy: 'npm run setup, or use Node.js 24' },
    );
  return join(directory, PROGRAM);
}
