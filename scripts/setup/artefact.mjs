/**
 * Built artefacts are stored in `<assets>/<kind>/<recipe hash>.<when>`, or in another parent instead of
 * `<assets>/<kind>`. A directory is filled under a temporary name, made durable and renamed. A directory with its final
 * name is therefore complete, so its existence is the whole check. An interrupted build leaves only a `.building-*`,
 * which the next set-up removes. Callers hold the set-up lock.
 */
import { mkdir, open, readdir, rename, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { SYSTEM_ASSETS_DIR } from '../../packages/server/src/config/default-paths.mjs';
import { listFiles, recipeHash } from './hash.mjs';
import { assetsDirectory, isRoot } from './paths.mjs';
import { say } from './report.mjs';
import { describeError } from './setup-error.mjs';

/** Number of builds that stay: a service that is still running may have been started with an earlier one. */
const KEPT_BUILDS = 5;

/**
 * @typedef {{ kind: string, parent?: never } | { parent: string, kind?: never }} Place
 *
 * @typedef {object} Build
 * @property {number} [kept]  number of builds that stay; default 5
 * @property {unknown} recipe  all inputs of the build: a build with the same recipe is current
 * @property {boolean} [refresh]  build even if there is a current build
 * @property {boolean} [olderWill]  if the build fails, use the latest existing build, whatever its recipe
 * @property {(directory: string) => Promise<void>} build fills the directory
 *
 * @param {Place & Build} artefact
 * @returns {Promise<string>} the directory
 */
export async function ensureArtefact(artefact) {
  const parent = artefact.parent ?? join(assetsDirectory(), artefact.kind);
  await removeUnfinished(parent);
  if (artefact.refresh !== true) {
    const current =
      artefact.kind === undefined
        ? await findBuild(parent, artefact.recipe)
        : await findArtefact(artefact.kind, artefact.recipe);
    if (current !== undefined) return current;
  }
  await mkdir(parent, { recursive: true, mode: 0o755 });
  const building = join(parent, `.building-${process.pid}`);
  await mkdir(building, { mode: 0o755 });
  try {
    await artefact.build(building);
    await makeDurable(building);
    const directory = join(parent, `${recipeHash(artefact.recipe)}.${Date.now()}`);
    await rename(building, directory);
    await prune(parent, artefact.kept ?? KEPT_BUILDS);
    return directory;
  } catch (error) {
    await rm(building, { recursive: true, force: true });
    const older = (await buildNames(parent)).at(-1);
    if (artefact.olderWill !== true || artefact.refresh === true || older === undefined) throw error;
    say(
      `${describeError(error)}\n  using the ${basename(parent)} of an earlier set-up instead: ${join(parent, older)}`,
    );
    return join(parent, older);
  }
}

/**
 * @param {string} kind
 * @param {unknown} recipe
 * @returns {Promise<string | undefined>} directory of the current build: own, or for an ordinary user that of root
 */
async function findArtefact(kind, recipe) {
  const own = await findBuild(join(assetsDirectory(), kind), recipe);
  return own ?? (isRoot() ? undefined : findBuild(join(SYSTEM_ASSETS_DIR, kind), recipe));
}

/**
 * @param {string} parent
 * @param {unknown} recipe
 * @returns {Promise<string | undefined>} directory of the newest build with this recipe
 */
export async function findBuild(parent, recipe) {
  const hash = recipeHash(recipe);
  const newest = (await buildNames(parent)).findLast((name) => name.startsWith(`${hash}.`));
  return newest === undefined ? undefined : join(parent, newest);
}

/**
 * @param {string} parent
 * @returns {Promise<string[]>} finished builds, oldest first
 */
async function buildNames(parent) {
  const names = await listNames(parent);
  return names
    .filter((name) => /^[0-9a-f]{16}\.\d+$/.test(name))
    .sort((a, b) => Number(a.slice(17)) - Number(b.slice(17)));
}

/**
 * @param {string} directory
 * @returns {Promise<string[]>}
 */
async function listNames(directory) {
  try {
    return await readdir(directory);
  } catch (error) {
    if (['ENOENT', 'EACCES'].includes(/** @type {NodeJS.ErrnoException} */ (error).code ?? '')) return [];
    throw error;
  }
}

/** @param {string} parent */
async function removeUnfinished(parent) {
  for (const name of await listNames(parent)) {
    if (name.startsWith('.building-')) await rm(join(parent, name), { recursive: true, force: true });
  }
}

/**
 * @param {string} parent
 * @param {number} kept
 */
async function prune(parent, kept) {
  for (const name of (await buildNames(parent)).slice(0, -kept)) {
    await rm(join(parent, name), { recursive: true, force: true });
  }
}

/**
 * Flushes the files of a directory before its rename: after a power loss a renamed directory must not have empty files.
 * @param {string} directory
 */
async function makeDurable(directory) {
  for (const file of await listFiles(directory)) {
    const handle = await open(file, 'r');
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  }
}
