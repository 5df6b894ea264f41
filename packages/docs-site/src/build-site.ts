/**
 * Builds the documentation that control serves at /docs: pages from our Markdown and from the OpenAPI document, and a
 * search index. Every file is compressed; control sends it as it is.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, extname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { rolldown } from 'rolldown';
import { listOperations, readOpenApi, type OpenApiDocument } from './api/openapi-document.ts';
import { groupOperations } from './api/operation-groups.ts';
import { buildPages } from './pages/build-pages.ts';
import type { Assets } from './layout/page-layout.ts';
import { renderPage } from './layout/page-layout.ts';
import { buildIndex } from './search/build-index.ts';

const HERE = new URL('..', import.meta.url).pathname;

/** Files of the site by path, such as `/docs/guides/files` and `/docs/assets/site.0123456789ab.css`. */
export type SiteFiles = Map<string, Buffer>;

/** Writes the site into a directory: the file of `/docs/guides/files` is `docs/guides/files.html.gz`. */
export async function writeSite(repository: string, directory: string): Promise<void> {
  for (const [path, content] of await buildSite(repository)) {
    const file = join(directory, `${extname(path) === '' ? `${path}.html` : path}.gz`);
    mkdirSync(dirname(file), { recursive: true, mode: 0o755 });
    writeFileSync(file, gzipSync(content, { level: 9 }), { mode: 0o644 });
  }
}

/** Builds all files. Throws for a dead link, a missing example, and an index that is too large. */
export async function buildSite(repository: string): Promise<SiteFiles> {
  const document: OpenApiDocument = readOpenApi(join(repository, 'docs/reference/openapi.json'));
  const groups = groupOperations(listOperations(document));
  const { version } = JSON.parse(readFileSync(join(repository, 'packages/server/package.json'), 'utf8')) as {
    version: string;
  };
  const built = buildPages({ repository, document, groups });
  const files: SiteFiles = new Map();
  const assets = await buildAssets(files, buildIndex(built.search));
  for (const page of built.pages)
    files.set(page.url, Buffer.from(renderPage(page, { assets, groups: built.groups, version })));
  for (const [url, file] of built.images) files.set(url, readFileSync(join(repository, file)));
  return files;
}

async function buildAssets(files: SiteFiles, index: string): Promise<Assets> {
  const add = (name: string, extension: string, content: string | Buffer): string => {
    const hash = createHash('sha256').update(content).digest('hex').slice(0, 12);
    const url = `/docs/assets/${name}.${hash}.${extension}`;
    files.set(url, Buffer.from(content));
    return url;
  };
  const read = (name: string): Buffer => readFileSync(join(HERE, 'browser', name));
  return {
    style: add(
      'site',
      'css',
      Buffer.concat(['base.css', 'layout.css', 'content.css', 'api.css', 'search.css'].map(read)),
    ),
    script: add('site', 'js', await bundle('site.ts')),
    theme: add('theme', 'js', await bundle('theme.ts')),
    icon: add('icon', 'svg', read('icon.svg')),
    index: add('search', 'json', index),
  };
}

async function bundle(name: string): Promise<string> {
  const program = await rolldown({
    input: join(HERE, 'browser', name),
    platform: 'browser',
    logLevel: 'warn',
  });
  try {
    const { output } = await program.generate({ format: name === 'theme.ts' ? 'iife' : 'esm', minify: true });
    return output[0].code;
  } finally {
    await program.close();
  }
}
