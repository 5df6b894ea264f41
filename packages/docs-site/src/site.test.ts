/** The whole site, built as set-up builds it. */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import MiniSearch, { type SearchResult } from 'minisearch';
import { listOperations, readOpenApi, type Operation } from './api/openapi-document.ts';
import { buildSite, type SiteFiles } from './build-site.ts';
import { MAX_INDEX_BYTES } from './search/build-index.ts';
import { INDEX_OPTIONS, SEARCH_OPTIONS, type SearchEntry } from './search/index-options.ts';
import { listSources } from './sources/sources.ts';

const REPOSITORY = fileURLToPath(new URL('../../../', import.meta.url));
const MAX_PAGE_BYTES = 300_000;

let files: SiteFiles;
let pages: Map<string, string>;
let operations: Operation[];
before(async () => {
  files = await buildSite(REPOSITORY);
  pages = new Map(
    [...files]
      .filter(([path]) => !path.startsWith('/docs/assets/') && !path.startsWith('/docs/images/'))
      .map(([path, content]) => [path, content.toString()]),
  );
  operations = listOperations(readOpenApi(join(REPOSITORY, 'docs/reference/openapi.json')));
});

function listAll(page: string, pattern: RegExp): string[] {
  return [...page.matchAll(pattern)].map(([, found]) => found ?? '');
}

/** Other routes of the service that pages may name. */
const SERVED = new Set(['/openapi.json']);

test('no link and no anchor is dead, and every file that a page loads exists', () => {
  const faults = [...pages].flatMap(([path, page]) => {
    const links = listAll(page, /(?:href|src|data-index)="([^"]*)"/gu);
    assert.ok(links.length > 10, `${path} has links`);
    return links
      .filter((link) => !/^https?:/u.test(link))
      .filter((link) => {
        const [target = '', anchor] = link.replaceAll('&#39;', "'").replaceAll('&amp;', '&').split('#', 2);
        const file = target === '' ? path : target;
        if (SERVED.has(file)) return false;
        if (!files.has(file)) return true;
        const ids = listAll(pages.get(file) ?? '', /\bid="([^"]*)"/gu);
        return anchor !== undefined && !ids.includes(decodeURIComponent(anchor));
      })
      .map((link) => `${path}: ${link}`);
  });
  assert.deepEqual(faults, []);
});

test('ids are unique on each page', () => {
  for (const [path, page] of pages) {
    const ids = listAll(page, /\bid="([^"]*)"/gu);
    assert.equal(new Set(ids).size, ids.length, path);
  }
});

test('no page has a script or a style inside, or names another host as a source', () => {
  for (const [path, page] of pages) {
    assert.doesNotMatch(page, /<style|<script>|href="javascript:/u, path);
    assert.doesNotMatch(page.replaceAll(/"[^"]*"/gu, '""'), /<[^>]*\s(?:style|on\w+)="/u, path);
    for (const source of listAll(page, /<(?:script|link|img)[^>]*(?:src|href)="([^"]*)"/gu))
      assert.match(source, /^\/docs\/(?:assets|images)\//u, path);
  }
});

test('every page has a title, a description and one main heading', () => {
  const titles = new Map<string, string>();
  for (const [path, page] of pages) {
    assert.equal(listAll(page, /<(h1)\b/gu).length, 1, path);
    const [title = ''] = listAll(page, /<title>([^<]+)<\/title>/gu);
    assert.ok(title.length > ' · Coppice'.length, path);
    assert.match(page, /<meta name="description" content="[^"]{3,}"/u, path);
    assert.equal(titles.get(title), undefined, `${path} and ${titles.get(title)} are both "${title}"`);
    titles.set(title, path);
    assert.ok(Buffer.byteLength(page) < MAX_PAGE_BYTES, `${path} has ${Buffer.byteLength(page)} bytes`);
  }
});

test('every Markdown page of docs and every example is on the site, and in its navigation', () => {
  const sources = listSources(REPOSITORY);
  const known = new Set(sources.map(({ file }) => file));
  for (const folder of ['docs', 'docs/guides', 'docs/reference', 'docs/decisions'])
    for (const name of readdirSync(join(REPOSITORY, folder)).filter((each) => each.endsWith('.md')))
      assert.ok(known.has(`${folder}/${name}`), `${folder}/${name}`);
  const examples = readdirSync(join(REPOSITORY, 'examples'), { withFileTypes: true });
  for (const { name } of examples.filter((entry) => entry.isDirectory()))
    assert.ok(known.has(`examples/${name}/README.md`), name);
  for (const { path, section } of sources)
    assert.ok(pages.get(`/docs/${section}`)?.includes(`<a href="/docs/${path}"`), path);
});

test('every operation has a page with its parameters, body, answers, errors and examples', () => {
  assert.ok(operations.length > 100, 'the operations are found');
  const index = pages.get('/docs/api') ?? '';
  for (const operation of operations) {
    const { method, path, slug, parameters = [], requestBody, responses } = operation;
    const page = pages.get(`/docs/api/${slug}`) ?? '';
    assert.ok(page !== '', `${method} ${path} has a page`);
    assert.ok(index.includes(`href="/docs/api/${slug}"`), `${slug} is in the index`);
    assert.ok(page.includes(`<code>${path}</code>`), slug);
    for (const { name } of parameters)
      assert.ok(page.includes(`<code class="field-name">${name}</code>`), `${slug}: ${name}`);
    if (requestBody !== undefined) assert.ok(page.includes('id="body"'), slug);
    for (const status of Object.keys(responses))
      assert.ok(page.includes(`<span class="status">${status}</span>`), `${slug}: ${status}`);
    assert.ok(page.includes('aria-label="Code: TypeScript"'), slug);
    if (operation['x-websocket'] === undefined) assert.ok(page.includes('aria-label="Code: curl"'), slug);
  }
});

test('every field of a body is on the page of its operation', () => {
  const { components } = readOpenApi(join(REPOSITORY, 'docs/reference/openapi.json'));
  const fields = Object.keys(components.schemas['CreateSandboxRequest']?.properties ?? {});
  assert.ok(fields.length > 10);
  for (const field of fields)
    assert.ok(
      pages.get('/docs/api/create-sandbox')?.includes(`<code class="field-name">${field}</code>`),
      field,
    );
});

test('the search index is one bounded file, and finds guides and operations', () => {
  const indexes = [...files].filter(([path]) => /^\/docs\/assets\/search\.\w+\.json$/u.test(path));
  assert.equal(indexes.length, 1);
  const content = indexes[0]?.[1] ?? Buffer.alloc(0);
  assert.ok(content.length < MAX_INDEX_BYTES, `${content.length} bytes`);
  const index = MiniSearch.loadJSON<SearchEntry>(content.toString(), INDEX_OPTIONS);
  const find = (words: string): SearchResult[] => index.search(words, SEARCH_OPTIONS);
  const first = (words: string): string => String(find(words)[0]?.['url']).replace(/#.*/u, '');
  assert.equal(first('fork and hibernate'), '/docs/guides/fork-and-hibernate');
  assert.equal(first('createSandbox'), '/docs/api/create-sandbox');
  assert.equal(first('moving from e2b'), '/docs/guides/migrate-from-e2b');
  assert.equal(first('chmod'), '/docs/api/change-file-mode');
  assert.ok(
    find('idempotency').some(({ kind }) => kind === 'guides'),
    'guides',
  );
  assert.ok(
    find('idempotency').some(({ kind }) => kind === 'api'),
    'operations',
  );
  const known = find('sandbox').map(({ url }) => String(url).split('#', 1)[0] ?? '');
  assert.deepEqual(
    known.filter((url) => !pages.has(url)),
    [],
  );
});
