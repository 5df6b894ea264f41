/**
 * Builds the service into a few files of JavaScript, in `packages/server/dist/<recipe hash>.<when>`. From sources,
 * each of its four processes takes about three times as long to load and 1.5 times the memory (decision 43).
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureArtefact, findBuild } from './artefact.mjs';
import { sourceHash } from './hash.mjs';
import { REPOSITORY } from './paths.mjs';
import { say } from './report.mjs';
import { run } from './run-command.mjs';
import { SetupError } from './setup-error.mjs';

const BUILDS = join(REPOSITORY, 'packages', 'server', 'dist');
const BUILDER = join(REPOSITORY, 'packages', 'server', 'build-program.mjs');
const SOURCE = join(REPOSITORY, 'packages', 'server', 'src');
const MAIN = 'main.mjs';
const BUILD_TIMEOUT_MS = 5 * 60_000;
/** Many builds stay: a running service starts its roles from its own build, also while the checkout changes. */
const KEPT_BUILDS = 20;

/** @param {string} path relative to `packages` */
function isSource(path) {
  const isCode =
    /^(?:server|contract|mcp|sdk)\/src\/.*\.(?:ts|mjs)$/u.test(path) && !/\.test\.|\/testing\//u.test(path);
  return isCode || /^(?:server|contract|mcp)\/(?:package\.json|build-program\.mjs)$/u.test(path);
}

async function buildRecipe() {
  const packages = await readFile(join(REPOSITORY, 'package-lock.json'), 'utf8');
  return { version: 1, source: await sourceHash(join(REPOSITORY, 'packages'), isSource), packages };
}

/**
 * @param {string} node
 * @returns {Promise<string>} path of the program
 */
export async function ensureServiceProgram(node) {
  const directory = await ensureArtefact({
    parent: BUILDS,
    kept: KEPT_BUILDS,
    recipe: await buildRecipe(),
    build: async (target) => {
      say('building the service');
      const [builder, main, unpack] = [
        BUILDER,
        join(SOURCE, 'main.ts'),
        join(SOURCE, 'runner/image/unpacking/unpack.ts'),
      ].map((path) => JSON.stringify(path));
      const [directory, script] = [target, join(target, 'unpack.mjs')].map((path) => JSON.stringify(path));
      const program = `import { buildProgram, buildScript } from ${builder};
        await buildProgram(${main}, ${directory});
        await buildScript(${unpack}, ${script});`;
      await run(node, ['--input-type=module', '--eval', program], {
        step: 'building the service',
        timeoutMs: BUILD_TIMEOUT_MS,
      });
    },
  });
  return join(directory, MAIN);
}

/** @returns {Promise<string>} path of the program built from the current sources; throws SetupError if there is none */
export async function findServiceProgram() {
  const directory = await findBuild(BUILDS, await buildRecipe());
  if (directory === undefined)
    throw new SetupError('the service has not been built from these sources', { remedy: 'npm run setup' });
  return join(directory, MAIN);
}
