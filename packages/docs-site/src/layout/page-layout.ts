/** The frame of every page: head, sections, navigation, content, list of headings. */
import { html, type Html } from '../html/html.ts';
import type { Heading } from '../markdown/render-markdown.ts';
import type { Section } from '../sources/sources.ts';
import { renderNavigation, renderPager, renderTabs, type NavigationGroup } from './navigation.ts';

/** Addresses of the files that every page loads. Their names have a hash, so browsers keep them for good. */
export interface Assets {
  style: string;
  script: string;
  theme: string;
  icon: string;
  index: string;
}

export interface Page {
  /** From the root of the host, such as `/docs/guides/files`. */
  url: string;
  title: string;
  summary: string;
  section: Section | undefined;
  body: Html;
  headings: readonly Heading[];
  /** Width of the content: text is narrower than examples beside it. */
  layout: 'text' | 'wide';
}

export interface Site {
  assets: Assets;
  groups: readonly NavigationGroup[];
  version: string;
}

const MAX_SUMMARY = 200;

export function renderPage(page: Page, { assets, groups, version }: Site): string {
  const navigation = renderNavigation(groups, page.section, page.url);
  return html`<!doctype html>
    <html lang="en" data-index="${assets.index}">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <title>${page.title} · Coppice</title>
        <meta name="description" content="${shorten(page.summary)}" />
        <meta name="color-scheme" content="light dark" />
        <link rel="icon" href="${assets.icon}" type="image/svg+xml" />
        <link rel="stylesheet" href="${assets.style}" />
        <script src="${assets.theme}"></script>
        <script src="${assets.script}" type="module"></script>
      </head>
      <body class="${page.section === undefined ? 'no-nav' : 'with-nav'} ${page.layout}">
        <a class="skip" href="#content">Skip to the content</a>
        <header class="top">
          <a class="brand" href="/docs"
            ><img src="${assets.icon}" alt="" width="24" height="24" />Coppice <span>docs</span></a
          >
          <nav class="tabs" aria-label="Sections">${renderTabs(page.section)}</nav>
          <div class="tools">
            <button type="button" class="search-button" data-open-search hidden>
              <span>Search</span> <kbd>/</kbd>
            </button>
            <button
              type="button"
              class="icon-button"
              data-theme-switch
              hidden
              aria-label="Switch between light and dark"
            >
              ◐
            </button>
            ${page.section === undefined ? undefined : html`<button type="button" class="menu-button" popovertarget="navigation">Menu</button>`}
          </div>
        </header>
        <div class="frame">
          ${page.section === undefined ? undefined : html`<nav id="navigation" class="navigation" popover aria-label="Pages of this section">${navigation}</nav>`}
          <main id="content" tabindex="-1">
            <article>${page.body}</article>
            ${renderPager(groups, page.section, page.url)}
            <footer>
              <p>
                Coppice ${version} · <a href="/docs/changelog">Changelog</a> ·
                <a href="/openapi.json">openapi.json</a>
              </p>
            </footer>
          </main>
          ${renderContents(page.headings)}
        </div>
        ${renderSearch()}
      </body>
    </html> `.markup;
}

function renderContents(headings: readonly Heading[]): Html | undefined {
  const shown = headings.filter(({ level }) => level <= 3);
  if (shown.length < 2) return undefined;
  return html`<nav class="contents" aria-label="On this page">
    <p class="group">On this page</p>
    <ul>
      ${shown.map(
        ({ level, id, title }) => html`<li class="level-${level}"><a href="#${id}">${title}</a></li>`,
      )}
    </ul>
  </nav>`;
}

function renderSearch(): Html {
  return html`<dialog id="search" class="search" aria-label="Search the documentation">
    <input
      type="search"
      role="combobox"
      aria-label="Search"
      aria-expanded="true"
      aria-controls="search-results"
      aria-autocomplete="list"
      placeholder="Search guides and operations"
      autocomplete="off"
      spellcheck="false"
      maxlength="100"
    />
    <div id="search-results" role="listbox" aria-label="Results"></div>
    <p class="search-state" role="status">Type to search.</p>
  </dialog>`;
}

function shorten(text: string): string {
  return text.length <= MAX_SUMMARY ? text : `${text.slice(0, MAX_SUMMARY - 1).replace(/\s\S*$/u, '')}…`;
}
