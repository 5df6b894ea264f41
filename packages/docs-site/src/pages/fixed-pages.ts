/** The pages that come from no file: home, the sections, the operations by group, and the answer to unknown paths. */
import type { OperationGroup } from '../api/operation-groups.ts';
import { html, type Html } from '../html/html.ts';
import type { NavigationGroup } from '../layout/navigation.ts';
import { renderCode } from '../markdown/highlight.ts';
import type { Section } from '../sources/sources.ts';

const FIRST_STEPS = `import { Coppice } from '@coppice/sdk';

const client = new Coppice();
await using sandbox = await client.sandboxes.create({ image: 'coppice/base:1' });

await sandbox.upload('/workspace/answer.py', 'print(6 * 7)');
const { stdout } = await sandbox.exec('python3 answer.py');

const children = await sandbox.fork(3); // memory, processes and files`;

const CARDS: readonly (readonly [url: string, title: string, text: string])[] = [
  ['/docs/quick-start', 'Quick start', 'Install the service and run a first command in a sandbox.'],
  [
    '/docs/guides/typescript-client',
    'TypeScript client',
    'Sandboxes, streams, shells and files without a dependency.',
  ],
  [
    '/docs/guides/fork-and-hibernate',
    'Fork and hibernate',
    'Copy a running machine, save it, and roll it back.',
  ],
  ['/docs/guides/agents', 'Agents', 'Give a model a machine, and keep its keys out of it.'],
  [
    '/docs/guides/network-and-credentials',
    'Network and credentials',
    'Allow single hosts; the host signs requests.',
  ],
  ['/docs/guides/disks', 'Persistent disks', 'Keep /workspace when the sandbox ends.'],
  ['/docs/api', 'API', 'Every operation, with parameters, answers and examples.'],
  ['/docs/guides/operate', 'Operating', 'Run, back up, upgrade and observe the service.'],
  ['/docs/security', 'Security', 'Threat model, boundaries, and what is not protected.'],
];

export function renderHome(): Html {
  return html`<div class="hero">
      <div>
        <h1>Coppice</h1>
        <p class="lead">
          Run untrusted code in microVMs on your own machine. A sandbox is a virtual machine with its own
          Linux kernel, booted from any OCI image, and copied with its memory in milliseconds.
        </p>
        <p class="actions">
          <a class="button primary" href="/docs/quick-start">Quick start</a>
          <a class="button" href="/docs/api">API</a>
          <button type="button" class="button" data-open-search hidden>Search</button>
        </p>
      </div>
      ${renderCode(FIRST_STEPS, 'typescript', 'TypeScript')}
    </div>
    <h2 class="cards-title">Where to look</h2>
    <ul class="cards">
      ${CARDS.map(
        ([url, title, text]) =>
          html`<li>
            <a href="${url}"><strong>${title}</strong><span>${text}</span></a>
          </li>`,
      )}
    </ul>
    <p>
      You come from another service? Read how calls of <a href="/docs/guides/migrate-from-e2b">E2B</a> and
      <a href="/docs/guides/migrate-from-vercel">Vercel Sandbox</a> are written here.
    </p>`;
}

const SECTION_TEXTS: Readonly<Record<Exclude<Section, 'api'>, readonly [title: string, text: string]>> = {
  guides: ['Guides', 'How to use Coppice and how to run it.'],
  reference: ['Reference', 'Limits, behaviour, settings, error codes and formats.'],
  internals: ['Internals', 'How Coppice works, and why it works like that.'],
};

export function renderSection(
  section: Exclude<Section, 'api'>,
  groups: readonly NavigationGroup[],
  summaries: ReadonlyMap<string, string>,
): { title: string; summary: string; body: Html } {
  const [title, summary] = SECTION_TEXTS[section];
  const parts = groups
    .filter((group) => group.section === section)
    .map(
      (group) =>
        html`<h2>${group.title}</h2>
          <ul class="cards">
            ${group.links.map(
              ({ url, title: name }) =>
                html`<li>
                  <a href="${url}"
                    ><strong>${name}</strong><span>${firstSentence(summaries.get(url) ?? '')}</span></a
                  >
                </li>`,
            )}
          </ul>`,
    );
  return {
    title,
    summary,
    body: html`<h1>${title}</h1>
      <p class="lead">${summary}</p>
      ${parts}`,
  };
}

export function renderApiIndex(groups: readonly OperationGroup[]): Html {
  const parts = groups.map(
    ({ title, operations }) =>
      html`<h2>${title}</h2>
        <ul class="operations">
          ${operations.map(
            ({ slug, method, path, title: name }) =>
              html`<li>
                <a href="/docs/api/${slug}"
                  ><span class="method ${method.toLowerCase()}">${method}</span> <code>${path}</code
                  ><span class="text">${name}</span></a
                >
              </li>`,
          )}
        </ul>`,
  );
  return html`<h1>API</h1>
    <p class="lead">
      All operations of the HTTP API. The service describes them itself in
      <a href="/openapi.json">openapi.json</a> (OpenAPI 3.1).
    </p>
    <p>
      Requests below <code>/v1</code> carry an API key: <code>Authorization: Bearer cop_live_…</code>. Bodies
      and answers are JSON, except those of files and streams. Errors have a stable code: see
      <a href="/docs/reference/errors">Errors</a>.
    </p>
    ${parts}`;
}

export function renderNotFound(): Html {
  return html`<div class="not-found">
    <p class="status">404</p>
    <h1>There is no such page</h1>
    <p class="lead">It may have moved. Search for it, or start from one of the sections.</p>
    <p class="actions">
      <button type="button" class="button primary" data-open-search hidden>Search the documentation</button>
      <a class="button" href="/docs/guides">Guides</a> <a class="button" href="/docs/api">API</a>
      <a class="button" href="/docs/reference">Reference</a>
    </p>
  </div>`;
}

function firstSentence(text: string): string {
  return /^.{20,}?\.(?=\s|$)/u.exec(text)?.[0] ?? text;
}
