/** The documentation (decision 64). */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileHash, sourceHash } from '../hash.mjs';
import { REPOSITORY } from '../paths.mjs';

const PAGES = ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'packages/sdk/README.md'];

/** @type {import('./site.mjs').Site} */
export const DOCUMENTATION = {
  kind: 'docs',
  name: 'documentation',
  place: '/docs',
  builder: join(REPOSITORY, 'packages', 'docs-site', 'src', 'write-site.ts'),
  buildRecipe,
};

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
