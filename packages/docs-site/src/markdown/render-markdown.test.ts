import assert from 'node:assert/strict';
import { test } from 'node:test';
import { html } from '../html/html.ts';
import { renderCode } from './highlight.ts';
import { renderInline, renderMarkdown } from './render-markdown.ts';

const OPTIONS = {
  file: 'docs/a.md',
  resolve: (target: string) => (target.startsWith('gone') ? undefined : target),
  findOperation: (text: string) => (text === 'GET /v1/runs' ? '/docs/api/list-sandboxes' : undefined),
};
const HOSTILE = '<img src=x onerror=alert(1)><script>alert(1)</script>';

test('HTML in Markdown is shown, never put into the page', () => {
  const { body, title, headings } = renderMarkdown(
    `# ${HOSTILE}\n\n${HOSTILE}\n\n## a "b" ${HOSTILE}\n\n| ${HOSTILE} |\n|---|\n| x |\n`,
    OPTIONS,
  );
  assert.doesNotMatch(body.markup, /<img|<script/u);
  assert.equal(title, HOSTILE);
  assert.equal(headings[0]?.level, 2);
  assert.doesNotMatch(renderInline(HOSTILE, OPTIONS).markup, /<img|<script/u);
});

test('code is escaped, in a known language and in none', () => {
  for (const language of ['ts', 'sh', 'json', 'unknown', ''])
    assert.doesNotMatch(renderCode(`const a = '${HOSTILE}';`, language).markup, /<img|<script>/u, language);
});

test('a template escapes all but its own kind', () => {
  const inner = html`<i>${1}</i>`;
  assert.equal(
    html`<p title="${'"x"'}">${'<b>'}${inner}${['&', undefined]}</p>`.markup,
    '<p title="&quot;x&quot;">&lt;b&gt;<i>1</i>&amp;</p>',
  );
});

test('addresses of scripts are no links', () => {
  const { body } = renderMarkdown('# a\n\n[x](javascript:alert(1)) [y](data:text/html,x)\n', OPTIONS);
  assert.doesNotMatch(body.markup, /href="(?:javascript|data)/u);
});

test('a link that leads nowhere is text', () => {
  const { body } = renderMarkdown('# a\n\n[x](gone.ts) [y](b.md)\n', OPTIONS);
  assert.match(body.markup, /<span class="in-repository">x<\/span> <a href="b.md">y<\/a>/u);
});

test('code that names an operation leads to its page, unless it is in a link', () => {
  const { body } = renderMarkdown('# a\n\n`GET /v1/runs` `GET /v1/none` [`GET /v1/runs`](b.md)\n', OPTIONS);
  assert.equal(body.markup.split('href="/docs/api/list-sandboxes"').length, 2);
  assert.match(body.markup, /<code>GET \/v1\/none<\/code>/u);
});

test('headings have the ids that Markdown viewers give them', () => {
  const { headings } = renderMarkdown('# a\n\n## When `x` — or “y”?\n\n## Same\n\n## Same\n', OPTIONS);
  assert.deepEqual(
    headings.map(({ id }) => id),
    ['when-x--or-y', 'same', 'same-1'],
  );
});

test('cells are aligned by a class: the page allows no style', () => {
  const { body } = renderMarkdown('# a\n\n| x | y | z |\n|---|--:|:-:|\n| 1 | 2 | 3 |\n', OPTIONS);
  assert.match(body.markup, /<td>1<\/td>\s*<td class="right">2<\/td>\s*<td class="center">3<\/td>/u);
  assert.doesNotMatch(body.markup, /style=/u);
});

test('a page without a main heading is refused', () => {
  assert.throws(() => renderMarkdown('## a\n', OPTIONS), /docs\/a\.md does not begin with a heading/u);
});

test('search gets the text of each section, without its heading', () => {
  const { sections } = renderMarkdown('# a\n\none\n\n## b\n\ntwo `code`\n\n```sh\nthree\n```\n', OPTIONS);
  assert.deepEqual(
    sections.map(({ id, text }) => [id, text.trim()]),
    [
      ['a', 'one'],
      ['b', 'two code three'],
    ],
  );
});
