/** Turns the document of @fastify/swagger and zod into one that readers and client generators can use. */
import type { jsonSchemaTransformObject } from 'fastify-type-provider-zod';
import { describeStatus, OPTIONAL_BODY } from './operations.ts';

type Document = ReturnType<typeof jsonSchemaTransformObject>;
type Schemas = Record<string, unknown>;

type Answer = { description: string } | { $ref: string };
type Answers = Record<string, Answer>;

interface Operation {
  operationId: string;
  [OPTIONAL_BODY]?: boolean;
  requestBody?: { required?: boolean; content: Record<string, unknown> };
  responses?: Answers;
}

interface Parts {
  paths?: Record<string, Record<string, Operation>>;
  components?: { schemas?: Schemas; responses?: Answers };
}

const INPUT = 'Input';
/** Text that @fastify/swagger writes where a schema has no description. */
const NO_DESCRIPTION = 'Default Response';

const FORM_TYPE = 'multipart/form-data';
/** Schema of an uploaded form. Fastify describes all types of a body by one schema, but a form is more than bytes. */
const FILE_FORM = {
  schema: {
    type: 'object',
    properties: { file: { type: 'string', format: 'binary' } },
    required: ['file'],
    additionalProperties: false,
  },
};

export function finishDocument(document: Document): Document {
  const { paths = {}, components = {} } = document as Parts;
  const refusals: Answers = {};
  for (const operations of Object.values(paths)) {
    for (const operation of Object.values(operations)) finishOperation(operation, refusals);
  }
  return nameSchemas({ ...document, components: { ...components, responses: refusals } } as Document);
}

function finishOperation(operation: Operation, refusals: Answers): void {
  const { requestBody } = operation;
  if (requestBody !== undefined && operation[OPTIONAL_BODY] === true) requestBody.required = false;
  if (requestBody?.content[FORM_TYPE] !== undefined) requestBody.content[FORM_TYPE] = FILE_FORM;
  delete operation[OPTIONAL_BODY];
  // @fastify/swagger assumes that Fastify has added each HEAD to a GET with the same id.
  operation.operationId = operation.operationId.replace(/-head$/, '');
  const answers = operation.responses ?? {};
  for (const [status, answer] of Object.entries(answers)) {
    const isPlain = 'description' in answer && answer.description === NO_DESCRIPTION;
    if (!isPlain) continue;
    const description = describeStatus(status);
    answers[status] = { ...answer, description: description ?? 'Done.' };
    if (description !== undefined) answers[status] = shareRefusal(status, answers[status], refusals);
  }
}

/** All refusals with the same status are the same answer: the document contains it once. */
function shareRefusal(status: string, answer: Answer, refusals: Answers): Answer {
  const name = `Error${status}`;
  refusals[name] ??= answer;
  return { $ref: `#/components/responses/${name}` };
}

/**
 * Every named schema comes twice, as input and as output. Requests keep the strict input form, under the plain name;
 * answers lose `additionalProperties: false`, with which a new field in an answer would break generated clients.
 */
function nameSchemas(document: Document): Document {
  const { paths, components = {} } = document as Parts;
  const { schemas = {}, responses } = components;
  const isInput = (name: string) =>
    name.endsWith(INPUT) && Object.hasOwn(schemas, name.slice(0, -INPUT.length));
  const used = findUsed(schemas, [paths, responses]);
  const named: Schemas = {};
  for (const name of used) {
    const plain =
      isInput(name) && !used.has(name.slice(0, -INPUT.length)) ? name.slice(0, -INPUT.length) : name;
    named[plain] = isInput(name) ? schemas[name] : openUp(schemas[name]);
  }
  const text = JSON.stringify({ ...document, components: { ...components, schemas: named } });
  return JSON.parse(
    text.replaceAll(REFERENCE, (whole, name: string) => referTo(whole, name, named)),
  ) as Document;
}

const REFERENCE = /"#\/components\/schemas\/(\w+)"/g;

function referTo(whole: string, name: string, named: Schemas): string {
  return Object.hasOwn(named, name) ? whole : `"#/components/schemas/${name.slice(0, -INPUT.length)}"`;
}

/** Returns the names that these parts refer to, directly or through another schema. */
function findUsed(schemas: Schemas, parts: unknown): Set<string> {
  const used = new Set<string>();
  const visit = (part: unknown) => {
    for (const [, name] of JSON.stringify(part ?? {}).matchAll(REFERENCE)) {
      if (name === undefined || used.has(name)) continue;
      used.add(name);
      visit(schemas[name]);
    }
  };
  visit(parts);
  return new Set([...used].sort());
}

/** Removes the limits of a safe integer, which say nothing, and `additionalProperties: false`. */
function openUp(schema: unknown): unknown {
  return JSON.parse(JSON.stringify(schema), (key, value: unknown) => {
    const isNoise =
      key === 'additionalProperties' ? value === false : Math.abs(Number(value)) === Number.MAX_SAFE_INTEGER;
    return isNoise && typeof value !== 'string' ? undefined : value;
  });
}
