import { html, type Html } from '../html/html.ts';
import { SECTION_TITLES, SECTIONS, type Section } from '../sources/sources.ts';

interface NavigationLink {
  /** From the root of the host, such as `/docs/guides/files`. */
  url: string;
  title: string;
  /** Method of an operation. */
  method?: string;
}

export interface NavigationGroup {
  section: Section;
  title: string;
  links: NavigationLink[];
}

/** The links to the sections, in the head of every page. */
export function renderTabs(current: Section | undefined): Html {
  return html`${SECTIONS.map(
    (section) =>
      html`<a href="/docs/${section}" ${current === section ? html` aria-current="true"` : undefined}
        >${SECTION_TITLES[section]}</a
      >`,
  )}`;
}

/** The pages of a section. Groups of operations are folded, except the one of the page. */
export function renderNavigation(
  groups: readonly NavigationGroup[],
  section: Section | undefined,
  url: string,
): Html {
  return html`${groups
    .filter((group) => group.section === section)
    .map((group) => {
      const links = html`<ul>
        ${group.links.map((link) => renderLink(link, url))}
      </ul>`;
      if (group.section !== 'api')
        return html`<p class="group">${group.title}</p>
          ${links}`;
      const open = group.links.some((link) => link.url === url) ? html` open` : undefined;
      return html`<details${open}><summary>${group.title}</summary>${links}</details>`;
    })}`;
}

function renderLink({ url, title, method }: NavigationLink, current: string): Html {
  const mark = url === current ? html` aria-current="page"` : undefined;
  const label =
    method === undefined ? undefined : html`<span class="method ${method.toLowerCase()}">${method}</span> `;
  return html`<li><a href="${url}" ${mark}>${label}${title}</a></li>`;
}

/** Links to the pages before and after one in its section. */
export function renderPager(
  groups: readonly NavigationGroup[],
  section: Section | undefined,
  url: string,
): Html | undefined {
  const links = groups.filter((group) => group.section === section).flatMap((group) => group.links);
  const index = links.findIndex((link) => link.url === url);
  if (index === -1) return undefined;
  const [before, after] = [links[index - 1], links[index + 1]];
  return html`<nav class="pager" aria-label="Pages before and after">
    ${
      before === undefined
        ? undefined
        : html`<a class="before" href="${before.url}" rel="prev"><small>Previous</small>${before.title}</a>`
    }${after === undefined ? undefined : html`<a class="after" href="${after.url}" rel="next"><small>Next</small>${after.title}</a>`}
  </nav>`;
}
