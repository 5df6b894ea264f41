/** Renders our Markdown. Its text is ours, and still no HTML in it reaches a page: it is shown as text. */
import MarkdownIt, {
  type Env,
  type MarkdownIt as Renderer,
  type RendererRule,
  type Token,
} from 'markdown-it';
import { escapeHtml, Html, html } from '../html/html.ts';
import { renderCode } from './highlight.ts';
import type { ResolveLink } from './links.ts';
import { Slugs } from './slugs.ts';

export interface Heading {
  level: number;
  id: string;
  title: string;
}

/** The text of a page below one heading. */
interface PageSection extends Heading {
  text: string;
}

export interface RenderedPage {
  title: string;
  /** First paragraph, as plain text. */
  summary: string;
  body: Html;
  headings: Heading[];
  sections: PageSection[];
}

export interface RenderOptions {
  /** Path of the file in the repository. */
  file: string;
  resolve: ResolveLink;
  /** Returns the page of an operation such as `GET /v1/runs`. */
  findOperation: (text: string) => string | undefined;
}

interface Environment extends Env, RenderOptions {
  /** For each open link: whether it leads anywhere. */
  links: boolean[];
}

const RULES: Readonly<Record<string, RendererRule>> = {
  fence: (tokens, index) => {
    const { content = '', info = '' } = tokens[index] ?? {};
    return renderCode(content, info.trim()).markup;
  },
  code_block: (tokens, index) => renderCode(tokens[index]?.content ?? '', '').markup,
  code_inline: (tokens, index, _options, env) => {
    const text = tokens[index]?.content ?? '';
    const { links, findOperation } = toEnvironment(env);
    const page = links.length > 0 ? undefined : findOperation(text);
    const code = html`<code>${text}</code>`;
    return (page === undefined ? code : html`<a href="${page}">${code}</a>`).markup;
  },
  table_open: () => '<div class="table" tabindex="0" role="group" aria-label="Table"><table>',
  table_close: () => '</table></div>',
  th_open: openCell,
  td_open: openCell,
  heading_close: (tokens, index) => {
    const open = tokens.slice(0, index).findLast(({ type }) => type === 'heading_open');
    const title = open?.meta as { title?: string } | null;
    const anchor = html`<a
      class="anchor"
      href="#${readAttribute(open, 'id')}"
      aria-label="Link to “${title?.title ?? ''}”"
      >#</a
    >`;
    return `${open?.tag === 'h1' ? '' : anchor.markup}</${tokens[index]?.tag}>\n`;
  },
  image: (tokens, index, _options, env) => {
    const { resolve, file } = toEnvironment(env);
    const source = resolve(readAttribute(tokens[index], 'src'), file) ?? '';
    return html`<img src="${source}" alt="${tokens[index]?.content ?? ''}" loading="lazy" />`.markup;
  },
  link_open: (tokens, index, _options, env) => {
    const { resolve, file, links } = toEnvironment(env);
    const href = resolve(readAttribute(tokens[index], 'href'), file);
    links.push(href !== undefined);
    if (href === undefined) return '<span class="in-repository">';
    const outside = href.startsWith('http') ? ' rel="noreferrer"' : '';
    return `<a href="${escapeHtml(href)}"${outside}>`;
  },
  link_close: (_tokens, _index, _options, env) =>
    toEnvironment(env).links.pop() === true ? '</a>' : '</span>',
};

const MARKDOWN = buildRenderer();

/** Renders a file. Throws for a link to a file that does not exist, and without a heading of level 1. */
export function renderMarkdown(text: string, options: RenderOptions): RenderedPage {
  const env: Environment = { ...options, links: [] };
  const tokens = MARKDOWN.parse(text, env);
  const headings = nameHeadings(tokens);
  const [first] = headings;
  if (first?.level !== 1) throw new Error(`${options.file} does not begin with a heading of level 1`);
  return {
    title: first.title,
    summary: findSummary(tokens),
    body: new Html(MARKDOWN.renderer.render(tokens, MARKDOWN.options, env)),
    headings: headings.slice(1),
    sections: splitSections(tokens, headings),
  };
}

/** Renders a short text with code, emphasis and links, such as a description of the API. */
export function renderInline(text: string, options: RenderOptions): Html {
  return new Html(MARKDOWN.renderInline(text, { ...options, links: [] } satisfies Environment));
}

function buildRenderer(): Renderer {
  const markdown = new MarkdownIt({ html: false, linkify: false, typographer: false });
  Object.assign(markdown.renderer.rules, RULES);
  return markdown;
}

/** Gives each heading its id, and returns them. */
function nameHeadings(tokens: readonly Token[]): Heading[] {
  const slugs = new Slugs();
  return tokens.flatMap((token, index) => {
    if (token.type !== 'heading_open') return [];
    const title = plainText(tokens[index + 1]);
    const id = slugs.add(title);
    token.attrSet('id', id);
    token.meta = { title };
    return [{ level: Number(token.tag.slice(1)), id, title }];
  });
}

/** Every call of the renderer passes one. */
function toEnvironment(env: Env | undefined): Environment {
  return env as Environment;
}

/** Aligned cells get a class in place of a style, which the page would not apply. */
function openCell(tokens: readonly Token[], index: number): string {
  const token = tokens[index];
  const [, side] = /^text-align:(right|center)$/u.exec(readAttribute(token, 'style')) ?? [];
  return side === undefined ? `<${token?.tag}>` : `<${token?.tag} class="${side}">`;
}

function readAttribute(token: Token | undefined, name: string): string {
  return String(token?.attrGet(name) ?? '');
}

function plainText(token: Token | undefined): string {
  const children = token?.children ?? [];
  return children
    .map(({ type, content }) => (type === 'softbreak' || type === 'hardbreak' ? ' ' : content))
    .join('');
}

/** Returns the first paragraph, without the status of a decision and the word that begins its context. */
function findSummary(tokens: readonly Token[]): string {
  const paragraphs = tokens.flatMap(({ type, level }, index) =>
    type === 'paragraph_open' && level === 0 ? [plainText(tokens[index + 1])] : [],
  );
  const found = paragraphs.find((paragraph) => !paragraph.startsWith('Status:')) ?? '';
  return found.replace(/^Context\. /u, '');
}

function splitSections(tokens: readonly Token[], headings: readonly Heading[]): PageSection[] {
  const texts: string[][] = headings.map(() => []);
  let current = -1;
  for (const [index, token] of tokens.entries()) {
    if (token.type === 'heading_open') current += 1;
    else if (token.type === 'fence') texts[current]?.push(token.content);
    else if (token.type === 'inline' && tokens[index - 1]?.type !== 'heading_open')
      texts[current]?.push(plainText(token));
  }
  return headings.map((heading, index) => ({ ...heading, text: texts[index]?.join(' ') ?? '' }));
}
