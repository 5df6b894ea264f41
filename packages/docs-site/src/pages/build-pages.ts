/** Makes the pages from all sources, with the navigation between them and the entries of the search. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { OpenApiDocument, Operation } from '../api/openapi-document.ts';
import type { OperationGroup } from '../api/operation-groups.ts';
import { listWords, renderOperation } from '../api/operation-page.ts';
import { readExamples } from '../api/typescript-example.ts';
import type { NavigationGroup } from '../layout/navigation.ts';
import type { Page } from '../layout/page-layout.ts';
import { buildResolver, type ResolveLink } from '../markdown/links.ts';
import { renderInline, renderMarkdown } from '../markdown/render-markdown.ts';
import type { SearchSource } from '../search/build-index.ts';
import { renderApiIndex, renderHome, renderNotFound, renderSection } from './fixed-pages.ts';
import { listSources, type Source } from '../sources/sources.ts';

/** Path of the answer to unknown paths. */
const NOT_FOUND_PATH = '/docs/404';
const SUMMARY = 'Self-hosted microVM sandboxes for code you do not trust.';
interface Built {
  pages: Page[];
  groups: NavigationGroup[];
  search: SearchSource[];
  /** Path in the repository by URL. */
  images: Map<string, string>;
}

interface Parts {
  repository: string;
  document: OpenApiDocument;
  groups: readonly OperationGroup[];
}

export function buildPages({ repository, document, groups }: Parts): Built {
  const sources = listSources(repository);
  const images = new Map<string, string>();
  const resolve = buildResolver(repository, sources, images);
  const findOperation = buildFinder(groups);
  const written = sources.map((source) => readPage(source, { repository, resolve, findOperation }));
  const navigation = [...groupPages(written), ...groups.map(toNavigation)];
  const operations = groups.flatMap((group) => group.operations);
  const describe = { resolve, findOperation, file: 'docs/reference/openapi.json' };
  const options = {
    document,
    renderText: (text: string) => renderInline(text, describe),
    findExample: readExamples(repository, document),
  };
  return {
    pages: [
      ...fixedPages(groups, navigation, new Map(written.map(({ page }) => [page.url, page.summary]))),
      ...written.map(({ page }) => page),
      ...operations.map((operation) => operationPage(operation, renderOperation(operation, options))),
    ],
    groups: navigation,
    search: [
      ...written.flatMap(({ search }) => search),
      ...operations.map((operation) => ({
        url: urlOf(operation),
        title: operation.title,
        page: `${operation.method} ${operation.path}`,
        kind: 'api' as const,
        text: listWords(operation, document),
      })),
    ],
    images,
  };
}

interface WrittenPage {
  source: Source;
  page: Page;
  search: SearchSource[];
}

interface ReadOptions {
  repository: string;
  resolve: ResolveLink;
  findOperation: (text: string) => string | undefined;
}

function readPage(source: Source, { repository, resolve, findOperation }: ReadOptions): WrittenPage {
  const text = readFileSync(join(repository, source.file), 'utf8');
  const { body, headings, sections, summary, ...own } = renderMarkdown(text, {
    file: source.file,
    resolve,
    findOperation,
  });
  const url = `/docs/${source.path}`;
  const title = source.shortTitle ?? own.title;
  const { section } = source;
  return {
    source,
    page: { url, title: own.title, summary, section, body, headings, layout: 'text' },
    search: sections.map(({ level, id, title: heading, text: words }) => ({
      url: level === 1 ? url : `${url}#${id}`,
      title: level === 1 ? own.title : heading,
      page: title,
      kind: section,
      text: words,
    })),
  };
}

function groupPages(written: readonly WrittenPage[]): NavigationGroup[] {
  const groups = new Map<string, NavigationGroup>();
  for (const { source, page } of written) {
    const key = `${source.section} ${source.group}`;
    const group = groups.get(key) ?? { section: source.section, title: source.group, links: [] };
    groups.set(key, group);
    group.links.push({ url: page.url, title: source.shortTitle ?? page.title });
  }
  return [...groups.values()];
}

function toNavigation({ title, operations }: OperationGroup): NavigationGroup {
  return {
    section: 'api',
    title,
    links: operations.map((operation) => ({
      url: urlOf(operation),
      title: nameOf(operation),
      method: operation.method,
    })),
  };
}

/** Returns a short name, such as "Create sandbox". */
function nameOf({ operationId }: Operation): string {
  const words = operationId.replaceAll(/(?<=[a-z])[A-Z]/gu, (letter) => ` ${letter.toLowerCase()}`);
  const name = words
    .replace('web socket', 'WebSocket')
    .replace('open api', 'openapi.json')
    .replace('api key', 'API key');
  return `${name.charAt(0).toUpperCase()}${name.slice(1)}`;
}

function operationPage(operation: Operation, body: Page['body']): Page {
  return {
    url: urlOf(operation),
    title: operation.title,
    summary: operation.summary,
    section: 'api',
    body,
    headings: [],
    layout: 'wide',
  };
}

function fixedPages(
  groups: readonly OperationGroup[],
  navigation: readonly NavigationGroup[],
  summaries: ReadonlyMap<string, string>,
): Page[] {
  const common = { headings: [], layout: 'text' as const };
  const wide = { ...common, section: undefined, summary: SUMMARY, layout: 'wide' as const };
  return [
    { ...wide, url: '/docs', title: 'Documentation', body: renderHome() },
    { ...wide, url: NOT_FOUND_PATH, title: 'Not found', body: renderNotFound() },
    {
      ...common,
      section: 'api',
      url: '/docs/api',
      title: 'API',
      summary: SUMMARY,
      body: renderApiIndex(groups),
    },
    ...(['guides', 'reference', 'internals'] as const).map((section): Page => {
      const { title, summary, body } = renderSection(section, navigation, summaries);
      return { section, url: `/docs/${section}`, title, summary, body, headings: [], layout: 'text' };
    }),
  ];
}

/** Builds the function that finds the page of `GET /v1/runs/{id}`, in a text as our pages write it. */
function buildFinder(groups: readonly OperationGroup[]): (text: string) => string | undefined {
  const pages = new Map(
    groups.flatMap(({ operations }) =>
      operations.map((operation) => [`${operation.method} ${operation.path}`, urlOf(operation)]),
    ),
  );
  return (text) => pages.get(text);
}

function urlOf({ slug }: Operation): string {
  return `/docs/api/${slug}`;
}
