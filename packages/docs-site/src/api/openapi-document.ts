/** The parts of the OpenAPI document that the pages show. */
import { readFileSync } from 'node:fs';

export interface Schema {
  $ref?: string;
  type?: string | string[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  additionalProperties?: Schema | boolean;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  example?: unknown;
  description?: string;
  format?: string;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  contentSchema?: Schema;
}

export interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header' | 'cookie';
  required?: boolean;
  description?: string;
  schema: Schema;
}

export interface Answer {
  $ref?: string;
  description?: string;
  content?: Record<string, { schema?: Schema }>;
}

interface WireOperation {
  operationId: string;
  summary?: string;
  description?: string;
  parameters?: Parameter[];
  requestBody?: { required?: boolean; content: Record<string, { schema: Schema }> };
  responses: Record<string, Answer>;
  security?: Record<string, unknown>[];
  'x-websocket'?: { client: Schema; service: Schema };
}

export interface OpenApiDocument {
  paths: Record<string, Record<string, WireOperation>>;
  components: { schemas: Record<string, Schema>; responses: Record<string, Answer> };
}

/** An operation with all that its page shows. */
export interface Operation extends WireOperation {
  method: string;
  path: string;
  /** Name of its page below `/docs/api/`. */
  slug: string;
  /** First clause of the summary: the rest is a sentence of its own. */
  title: string;
  /** All of the summary, and the description. */
  text: string;
  summary: string;
}

export function readOpenApi(file: string): OpenApiDocument {
  return JSON.parse(readFileSync(file, 'utf8')) as OpenApiDocument;
}

/** Lists all operations in the order of the document. */
export function listOperations({ paths }: OpenApiDocument): Operation[] {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => buildOperation(operation, { method, path })),
  );
}

function buildOperation(
  operation: WireOperation,
  { method, path }: { method: string; path: string },
): Operation {
  return {
    ...operation,
    ...splitSummary(operation),
    method: method.toUpperCase(),
    path,
    slug: operation.operationId.replaceAll(/[A-Z]/gu, (letter) => `-${letter.toLowerCase()}`),
    summary: operation.summary ?? operation.operationId,
  };
}

function splitSummary({ operationId, summary = operationId, description = '' }: WireOperation) {
  const [title = '', ...others] = summary.split('; ');
  const sentences = others.map((clause) => `${clause.charAt(0).toUpperCase()}${clause.slice(1)}.`);
  return { title, text: [...sentences, description].join(' ').trim() };
}

/** Returns the name of the schema that a reference leads to; undefined if the schema is no reference. */
export function nameOf({ $ref }: { $ref?: string }): string | undefined {
  return $ref?.split('/').at(-1);
}

/** Follows a reference. Throws if it leads nowhere. */
export function resolveSchema(schema: Schema, document: OpenApiDocument): Schema {
  const name = nameOf(schema);
  if (name === undefined) return schema;
  const target = document.components.schemas[name];
  if (target === undefined) throw new Error(`there is no schema ${name}`);
  return schema.description === undefined ? target : { ...target, description: schema.description };
}

/** Follows the reference of an answer. Throws if it leads nowhere. */
export function resolveAnswer(answer: Answer, document: OpenApiDocument): Answer {
  const name = nameOf(answer);
  if (name === undefined) return answer;
  const target = document.components.responses[name];
  if (target === undefined) throw new Error(`there is no answer ${name}`);
  return target;
}

/** The alternatives of a schema, without `null`. */
export function alternatives(schema: Schema): Schema[] {
  return (schema.anyOf ?? schema.oneOf ?? []).filter(({ type }) => type !== 'null');
}
