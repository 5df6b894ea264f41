/** The OpenAPI 3.1 document, made from the schemas that requests are checked and answers are written with. */
import swagger from '@fastify/swagger';
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod';
import { SESSION_COOKIE } from './account/session-cookie.ts';
import type { App } from './app.ts';

const INPUT = 'Input';

export async function addOpenApi(app: App, version: string): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Coppice',
        version,
        description: 'Self-hosted microVM sandboxes for code you do not trust.',
      },
      components: {
        securitySchemes: {
          apiKey: { type: 'http', scheme: 'bearer' },
          session: { type: 'apiKey', in: 'cookie', name: SESSION_COOKIE },
        },
      },
      tags: [
        {
          name: 'account',
          description: 'For people who are signed in. Changes need the header `Origin` of this service.',
        },
      ],
      security: [{ apiKey: [] }],
    },
    transform: jsonSchemaTransform,
    transformObject: (document) => tidyDocument(jsonSchemaTransformObject(document)),
  });
  app.get('/openapi.json', { schema: { hide: true } }, async (_request, reply) =>
    reply.type('application/json; charset=utf-8').send(JSON.stringify(app.swagger())),
  );
}

type Document = ReturnType<typeof jsonSchemaTransformObject>;
type Schemas = Record<string, unknown>;

/**
 * Every named schema comes twice, as input and as output. Requests keep the strict input form, under the plain name;
 * answers lose `additionalProperties: false`, with which a new field in an answer would break generated clients.
 */
function tidyDocument(document: Document): Document {
  const { paths, components } = document as { paths?: unknown; components?: { schemas?: Schemas } };
  const schemas = components?.schemas ?? {};
  const isInput = (name: string) =>
    name.endsWith(INPUT) && Object.hasOwn(schemas, name.slice(0, -INPUT.length));
  const used = findUsed(schemas, paths);
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

/** Names that the paths refer to, directly or through another schema. */
function findUsed(schemas: Schemas, paths: unknown): Set<string> {
  const used = new Set<string>();
  const visit = (part: unknown) => {
    for (const [, name] of JSON.stringify(part ?? {}).matchAll(REFERENCE)) {
      if (name === undefined || used.has(name)) continue;
      used.add(name);
      visit(schemas[name]);
    }
  };
  visit(paths);
  return new Set([...used].sort());
}

/** Leaves out what says nothing (the limits of a safe integer) or too much. */
function openUp(schema: unknown): unknown {
  return JSON.parse(JSON.stringify(schema), (key, value: unknown) => {
    const isNoise =
      key === 'additionalProperties' ? value === false : Math.abs(Number(value)) === Number.MAX_SAFE_INTEGER;
    return isNoise && typeof value !== 'string' ? undefined : value;
  });
}
