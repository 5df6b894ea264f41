/** Builds a site that control serves, in `<kind>/<recipe hash>.<when>` of the assets. */
import { ensureArtefact } from '../artefact.mjs';
import { say } from '../report.mjs';
import { run } from '../run-command.mjs';
import { describeError } from '../setup-error.mjs';

const BUILD_TIMEOUT_MS = 5 * 60_000;
/** A running service reads its own build again when a role restarts, also while the checkout changes. */
const KEPT_BUILDS = 20;

/**
 * @typedef {object} Site
 * @property {string} kind  of the artefact
 * @property {string} name  such as `documentation`
 * @property {string} place  path where the service shows it
 * @property {string} builder  path of a program that fills the directory of its argument
 * @property {() => Promise<unknown>} buildRecipe
 */

/**
 * A page with a fault must not keep the service from starting: if the build fails, an earlier one is used, or none.
 * @param {Site} site
 * @param {string} node
 * @param {{ isRequired: boolean }} options  `isRequired`: a build that fails is an error
 * @returns {Promise<string | undefined>} the directory
 */
export async function ensureSite({ kind, name, place, builder, buildRecipe }, node, { isRequired }) {
  const step = `building the ${name}`;
  try {
    return await ensureArtefact({
      kind,
      kept: KEPT_BUILDS,
      olderWill: !isRequired,
      recipe: await buildRecipe(),
      build: async (target) => {
        say(step);
        await run(node, [builder, target], { step, timeoutMs: BUILD_TIMEOUT_MS });
      },
    });
  } catch (error) {
    if (isRequired) throw error;
    say(`${describeError(error)}\n  the service starts without the ${name} at ${place}`);
    return undefined;
  }
}
