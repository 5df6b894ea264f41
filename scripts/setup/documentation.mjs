/** Builds the documentation that control serves at /docs, in `docs/<recipe hash>.<when>` of the assets (decision 64). */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureArtefact } from './artefact.mjs';
import { fileHash, sourceHash } from './hash.mjs';
import { REPOSITORY } from './paths.mjs';
import { say } from './report.mjs';
import { run } from './run-command.mjs';
import { describeError } from './setup-error.mjs';

const BUILDER = join(REPOSITORY, 'packages', 'docs-site', 'src', 'write-site.ts');
const BUILD_TIMEOUT_MS = 5 * 60_000;
/** A running service reads its own build again when a role restarts, also while the checkout changes. */
const KEPT_BUILDS = 20;
const PAGES = ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'packages/sdk/README.md'];

async function buildRecipe() {
  const [packages, docs, builder, client, examples, ...pages] = await Promise.all([
    readFile(join(REPOSITORY, 'package-lock.json'), 'utf8'),
    sourceHash(join(REPOSITORY, 'docs'), () => true),
    sourceHash(join(REPOSITORY, 'packages', 'docs-site'), (path) => !path.includes('.test.')),
    sourceHash(join(REPOSITORY, 'packages', 'sdk', 'src'), (path) => !path.includes('.test.')),
    sourceHash(join(REPOSITORY, 'examples'), (path) => path.endsWith('.md')),
    ...PAGES.map((page) => fileHash(join(REPOSITORY, page))),
  ]);
  return { version: 1, packages, docs, builder, client, examples, pages };
}

/**
 * A page with a fault must not keep the service from starting: if the build fails, an earlier one is used, or none.
 * @param {string} node
 * @param {{ isRequired: boolean }} options  `isRequired`: a build that fails is an error
 * @returns {Promise<string | undefined>} the directory
 */
export async function ensureDocumentation(node, { isRequired }) {
  const artefact = {
    kind: 'docs',
    kept: KEPT_BUILDS,
    olderWill: !isRequired,
    recipe: await buildRecipe(),
    build: async (/** @type {string} */ target) => {
      say('building the documentation');
      await run(node, [BUILDER, target], { step: 'building the documentation', timeoutMs: BUILD_TIMEOUT_MS });
    },
  };
  try {
    return await ensureArtefact(artefact);
  } catch (error) {
    if (isRequired) throw error;
    say(`${describeError(error)}\n  the service starts without the documentation at /docs`);
    return undefined;
  }
}
