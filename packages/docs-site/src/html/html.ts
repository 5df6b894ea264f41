/** HTML as a type of its own: whatever else goes into a template is escaped. */

/** Markup that is safe to put into a page. */
export class Html {
  readonly markup: string;

  constructor(markup: string) {
    this.markup = markup;
  }
}

export type HtmlPart = Html | string | number | undefined | readonly HtmlPart[];

/** Template tag: `html\`<p>${text}</p>\`` escapes `text`, unless it is {@link Html}. */
export function html(strings: TemplateStringsArray, ...parts: readonly HtmlPart[]): Html {
  return new Html(
    strings.map((text, index) => (index === 0 ? text : toMarkup(parts[index - 1]) + text)).join(''),
  );
}

/** Returns text with the characters that HTML gives a meaning escaped, for content and for quoted attributes. */
export function escapeHtml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');
}

function toMarkup(part: HtmlPart): string {
  if (part === undefined) return '';
  if (part instanceof Html) return part.markup;
  if (typeof part === 'string' || typeof part === 'number') return escapeHtml(String(part));
  return part.map(toMarkup).join('');
}
