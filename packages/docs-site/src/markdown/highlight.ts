import hljs from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import nginx from 'highlight.js/lib/languages/nginx';
import python from 'highlight.js/lib/languages/python';
import typescript from 'highlight.js/lib/languages/typescript';
import yaml from 'highlight.js/lib/languages/yaml';
import { Html, html } from '../html/html.ts';

hljs.registerLanguage('bash', bash);
hljs.registerLanguage('javascript', javascript);
hljs.registerLanguage('json', json);
hljs.registerLanguage('nginx', nginx);
hljs.registerLanguage('python', python);
hljs.registerLanguage('typescript', typescript);
hljs.registerLanguage('yaml', yaml);

const LABELS: Readonly<Record<string, string>> = {
  sh: 'Shell',
  bash: 'Shell',
  js: 'JavaScript',
  ts: 'TypeScript',
  json: 'JSON',
  python: 'Python',
  py: 'Python',
  yaml: 'YAML',
  nginx: 'nginx',
  caddyfile: 'Caddyfile',
};

/** Renders a block of code. The colours are classes: the page allows no inline style. */
export function renderCode(code: string, language: string, label = LABELS[language] ?? ''): Html {
  const text = code.replace(/\n$/u, '');
  const markup =
    hljs.getLanguage(language) === undefined
      ? html`${text}`
      : new Html(hljs.highlight(text, { language, ignoreIllegals: true }).value);
  const name = label === '' ? 'Code' : `Code: ${label}`;
  return html`<figure class="code">
    <figcaption>${label}</figcaption>
    <pre tabindex="0" role="group" aria-label="${name}"><code>${markup}</code></pre>
  </figure>`;
}
