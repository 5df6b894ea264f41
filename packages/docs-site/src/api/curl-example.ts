import { exampleOf } from './example-value.ts';
import {
  alternatives,
  resolveSchema,
  type OpenApiDocument,
  type Operation,
  type Parameter,
} from './openapi-document.ts';

const BASE = 'http://127.0.0.1:8080';
/** Characters that fit beside the text of a page. */
const MAX_LINE = 54;
/** Names of shell variables for parameters of paths. */
const VARIABLES: Readonly<Record<string, string>> = { previewId: 'preview', diskSnapshot: 'snapshot' };

/** Returns the example of a request as a command of curl; undefined for a WebSocket, which curl does not open. */
export function buildCurl(operation: Operation, document: OpenApiDocument): string | undefined {
  if (operation['x-websocket'] !== undefined) return undefined;
  const query = exampleQuery(operation, document);
  const url = `${BASE}${operation.path.replaceAll(/\{(\w+)\}/gu, (_, name: string) => `$${VARIABLES[name] ?? name}`)}${query}`;
  const command = `curl -s ${methodOption(operation)}`;
  const isShort = command.length + url.length < MAX_LINE;
  const words = [
    ...(isShort ? [`${command}"${url}"`] : [command.trim(), `"${url}"`]),
    ...credentialOptions(operation),
    ...bodyOptions(operation, document),
  ];
  return words.join(' \\\n  ');
}

/** Returns the query with all required parameters, `?` included; empty without one. */
export function exampleQuery({ parameters = [] }: Operation, document: OpenApiDocument): string {
  const required = parameters.filter((parameter) => parameter.in === 'query' && parameter.required === true);
  const pairs = required.map((parameter) => `${parameter.name}=${exampleParameter(parameter, document)}`);
  return pairs.length === 0 ? '' : `?${pairs.join('&')}`;
}

function exampleParameter({ name, schema }: Parameter, document: OpenApiDocument): string {
  return encodeURIComponent(String(exampleOf(schema, { document, onlyRequired: true }, name))).replaceAll(
    '%2F',
    '/',
  );
}

/** Returns the example of a JSON body; undefined for an operation without one. */
export function exampleBody({ requestBody }: Operation, document: OpenApiDocument): unknown {
  const schema = requestBody?.content['application/json']?.schema;
  if (schema === undefined) return undefined;
  const [first] = alternatives(resolveSchema(schema, document));
  return exampleOf(first ?? schema, { document, onlyRequired: true });
}

/** Whether people who are signed in call it, with a session. */
export function usesSession({ security }: Operation): boolean {
  return security?.some((each) => 'session' in each) === true;
}

/** Whether it needs no credential. */
export function isOpen({ security }: Operation): boolean {
  return security?.length === 0;
}

function methodOption({ method, requestBody }: Operation): string {
  if (method === 'GET') return '';
  if (method === 'HEAD') return '-I ';
  return method === 'POST' && requestBody?.content['application/json'] !== undefined ? '' : `-X ${method} `;
}

function credentialOptions(operation: Operation): string[] {
  if (operation.path.startsWith('/account/')) {
    const cookie = isOpen(operation) ? '-c cookies.txt' : '-b cookies.txt';
    return [cookie, ...(operation.method === 'GET' ? [] : [`-H "Origin: ${BASE}"`])];
  }
  return isOpen(operation) ? [] : ['-H "Authorization: Bearer $SANDBOX_API_KEY"'];
}

function bodyOptions(operation: Operation, document: OpenApiDocument): string[] {
  const { requestBody } = operation;
  if (requestBody === undefined) return [];
  const body = exampleBody(operation, document);
  if (body === undefined) return ['--data-binary @file'];
  const text = JSON.stringify(body).replaceAll("'", String.raw`'\''`);
  return ["-H 'Content-Type: application/json'", `-d '${text}'`];
}
