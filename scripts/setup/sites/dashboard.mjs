/** The web dashboard. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sourceHash } from '../hash.mjs';
import { REPOSITORY } from '../paths.mjs';

/** @type {import('./site.mjs').Site} */
export const DASHBOARD = {
  kind: 'dashboard',
  name: 'dashboard',
  place: '/',
  builder: join(REPOSITORY, 'packages', 'dashboard', 'write-dashboard.ts'),
  buildRecipe,
};

async function buildRecipe() {
  const isSource = (/** @type {string} */ path) => !path.includes('.test.');
  const [packages, pages, client, contract] = await Promise.all([
    readFile(join(REPOSITORY, 'package-lock.json'), 'utf8'),
    sourceHash(join(REPOSITORY, 'packages', 'dashboard'), isSource),
    sourceHash(join(REPOSITORY, 'packages', 'sdk', 'src'), isSource),
    sourceHash(join(REPOSITORY, 'packages', 'contract', 'src'), isSource),
  ]);
  return { version: 1, packages, pages, client, contract };
}
