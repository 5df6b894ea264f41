/** The page of one operation: what it takes and answers on the left, examples on the right. */
import { html, type Html } from '../html/html.ts';
import { renderCode } from '../markdown/highlight.ts';
import { buildCurl, isOpen, usesSession } from './curl-example.ts';
import { exampleOf } from './example-value.ts';
import {
  resolveAnswer,
  type Answer,
  type OpenApiDocument,
  type Operation,
  type Parameter,
  type Schema,
} from './openapi-document.ts';
import { hasFields, renderField, renderSchema, typeName, type SchemaViewOptions } from './schema-view.ts';
import type { FindExample } from './typescript-example.ts';

const PLACES = [
  ['path', 'Path parameters'],
  ['query', 'Query parameters'],
  ['header', 'Headers'],
] as const;
const MAX_EXAMPLE_LINES = 120;

export interface OperationPageOptions {
  document: OpenApiDocument;
  renderText: (text: string) => Html;
  findExample: FindExample;
}

export function renderOperation(operation: Operation, options: OperationPageOptions): Html {
  const { method, path, title, text } = operation;
  return html`<h1>${title}</h1>
    <p class="endpoint"><span class="method ${method.toLowerCase()}">${method}</span> <code>${path}</code></p>
    ${text === '' ? undefined : html`<p class="lead">${options.renderText(text)}</p>`}
    <div class="operation">
      <div class="operation-text">
        ${renderCredentials(operation)}
        ${PLACES.map(([place, title]) => renderParameters(operation, { place, title }, options))}
        ${renderBody(operation, options)} ${renderMessages(operation, options)}
        ${renderAnswers(operation, options)} ${renderErrors(operation, options)}
      </div>
      <div class="operation-examples">${renderExamples(operation, options)}</div>
    </div>`;
}

function renderCredentials(operation: Operation): Html {
  if (isOpen(operation)) return html`<p class="note">Needs no credential.</p>`;
  if (usesSession(operation))
    return html`<p class="note">
      Needs the session of a signed-in person. See <a href="/docs/guides/accounts">Accounts</a>.
    </p>`;
  const names = operation.security?.flatMap((each) => Object.keys(each)) ?? [];
  const ticket = names.includes('ticket') ? html`, or a <a href="/docs/api/create-ticket">ticket</a>` : '';
  return html`<p class="note">
    Needs an <a href="/docs/guides/accounts">API key</a> as bearer token${ticket}.
  </p>`;
}

function renderParameters(
  { parameters = [] }: Operation,
  { place, title }: { place: Parameter['in']; title: string },
  options: OperationPageOptions,
): Html | undefined {
  const found = parameters.filter((parameter) => parameter.in === place);
  if (found.length === 0) return undefined;
  const view = viewOf(options, true);
  const fields = found.map(({ name, schema, required, description }) =>
    renderField(
      {
        name,
        schema: description === undefined ? schema : { ...schema, description },
        isRequired: required === true,
      },
      view,
    ),
  );
  return html`<section>
    <h2 id="${place}">${title}</h2>
    <ul class="fields">
      ${fields}
    </ul>
  </section>`;
}

function renderBody({ requestBody }: Operation, options: OperationPageOptions): Html | undefined {
  if (requestBody === undefined) return undefined;
  const contents = Object.entries(requestBody.content).map(
    ([type, { schema }]) =>
      html`<p class="content-type"><code>${type}</code></p>
        ${renderContent(schema, viewOf(options, true))}`,
  );
  const optional = requestBody.required === true ? undefined : html` <span class="type">optional</span>`;
  return html`<section>
    <h2 id="body">Request body${optional}</h2>
    ${contents}
  </section>`;
}

function renderMessages(operation: Operation, options: OperationPageOptions): Html | undefined {
  const messages = operation['x-websocket'];
  if (messages === undefined) return undefined;
  return html`<section>
    <h2 id="messages">Text messages</h2>
    <h3 id="messages-client">From the client</h3>
    ${renderContent(messages.client, viewOf(options, true))}
    <h3 id="messages-service">From the service</h3>
    ${renderContent(messages.service, viewOf(options, false))}
  </section>`;
}

function renderAnswers(operation: Operation, options: OperationPageOptions): Html {
  const successes = listAnswers(operation, options.document).filter(({ isError }) => !isError);
  const parts = successes.map(({ status, answer }) => {
    const contents = Object.entries(answer.content ?? {}).map(
      ([type, { schema }]) =>
        html`<p class="content-type"><code>${type}</code></p>
          ${schema === undefined ? undefined : renderContent(schema, viewOf(options, false))}`,
    );
    return html`<h3 id="status-${status}">
        <span class="status">${status}</span> ${options.renderText(answer.description ?? '')}
      </h3>
      ${contents}`;
  });
  return html`<section>
    <h2 id="answers">Answers</h2>
    ${parts}
  </section>`;
}

/** The codes of an error are in its description: `code`: meaning, one after the other. */
function renderErrors(operation: Operation, options: OperationPageOptions): Html | undefined {
  const errors = listAnswers(operation, options.document).filter(({ isError }) => isError);
  if (errors.length === 0) return undefined;
  const rows = errors.flatMap(({ status, answer }) =>
    [...(answer.description ?? '').matchAll(/`(?<code>[a-z_]+)`: (?<meaning>.*?)(?= `[a-z_]+`: |$)/gu)].map(
      ({ groups }) =>
        html`<tr>
          <td><span class="status">${status}</span></td>
          <td><code>${groups?.['code']}</code></td>
          <td>${options.renderText(groups?.['meaning'] ?? '')}</td>
        </tr>`,
    ),
  );
  return html`<section>
    <h2 id="errors">Errors</h2>
    <p>
      The body of an error is <code>{"error":{"code","message","request_id"}}</code>; see
      <a href="/docs/reference/errors">Errors</a>.
    </p>
    <details class="errors">
      <summary>${rows.length} error codes</summary>
      <div class="table" tabindex="0" role="group" aria-label="Error codes">
        <table>
          <thead>
            <tr>
              <th>Status</th>
              <th>Code</th>
              <th>Meaning</th>
            </tr>
          </thead>
          <tbody>
            ${rows}
          </tbody>
        </table>
      </div>
    </details>
  </section>`;
}

function renderExamples(operation: Operation, options: OperationPageOptions): Html {
  const curl = buildCurl(operation, options.document);
  const typescript = options.findExample(operation);
  const note = typescript.isClient
    ? html`<p class="note">
        With the <a href="/docs/guides/typescript-client">TypeScript client</a>: <code>client</code> is
        <code>new Coppice()</code>, <code>sandbox</code> one of its sandboxes.
      </p>`
    : undefined;
  return html`${curl === undefined ? html`<p class="note">A WebSocket: see <a href="/docs/guides/streams-and-ports">Streams and ports</a>.</p>` : renderCode(curl, 'bash', 'curl')}
  ${renderCode(typescript.code, 'typescript', 'TypeScript')}${note}
  ${renderAnswerExample(operation, options.document)}`;
}

function renderAnswerExample(operation: Operation, document: OpenApiDocument): Html | undefined {
  for (const { status, answer, isError } of listAnswers(operation, document)) {
    const schema = answer.content?.['application/json']?.schema;
    if (isError || schema === undefined) continue;
    const value = exampleOf(schema, { document, onlyRequired: false });
    const text = JSON.stringify(value, undefined, 2);
    if (value === null || text.split('\n').length > MAX_EXAMPLE_LINES) continue;
    return renderCode(text, 'json', `Answer ${status}`);
  }
  return undefined;
}

function renderContent(schema: Schema, view: SchemaViewOptions): Html {
  if (schema.type === 'null') return html`<p class="note">No body.</p>`;
  const type = html`<p class="type">${typeName(schema, view.document)}</p>`;
  return hasFields(schema, view.document) ? html`${type}${renderSchema(schema, view)}` : type;
}

function listAnswers({ responses }: Operation, document: OpenApiDocument) {
  return Object.entries(responses).map(([status, answer]) => ({
    status,
    answer: resolveAnswer(answer, document) satisfies Answer,
    isError: /^[45]/u.test(status),
  }));
}

function viewOf({ document, renderText }: OperationPageOptions, marksRequired: boolean): SchemaViewOptions {
  return { document, renderText, marksRequired };
}

/** Returns the words of an operation that search finds it by. */
export function listWords(operation: Operation, document: OpenApiDocument): string {
  const { method, path, operationId, text, parameters = [] } = operation;
  const body = exampleFields(operation, document);
  const names = parameters.map(({ name, description = '' }) => `${name} ${description}`);
  return [text, operationId, `${method} ${path}`, ...names, ...body].join(' ');
}

function exampleFields({ requestBody }: Operation, document: OpenApiDocument): string[] {
  const schema = requestBody?.content['application/json']?.schema;
  if (schema === undefined) return [];
  const value = exampleOf(schema, { document, onlyRequired: false });
  return typeof value === 'object' && value !== null ? Object.keys(value) : [];
}
