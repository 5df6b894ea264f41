/** The OpenAPI 3.1 document, made from the schemas that requests are checked and answers are written with. */
import swagger from '@fastify/swagger';
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod';
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
      components: { securitySchemes: { apiKey: { type: 'http', scheme: 'bearer' } } },
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

/**
 * Every schema comes twice, as input and as output. Requests keep the strict input form, under the plain name; answers
 * lose `additionalProperties: false`, which would make a new field in an answer break generated clients.
 */
function tidyDocument(document: Document): Document {
  const paths = JSON.stringify('paths' in document ? document.paths : {});
  const schemas = readSchemas(document);
  const renamed = new Map<string, string>();
  const kept: Record<string, unknown> = {};
  for (const [name, schema] of Object.entries(schemas)) {
    const isUsed = JSON.stringify([paths, schemas]).includes(`#/components/schemas/${name}\\"`);
    if (!isUsed) continue;
    const isInput = name.endsWith(INPUT) && Object.hasOwn(schemas, name.slice(0, -INPUT.length));
    const plain = isInput ? name.slice(0, -INPUT.length) : name;
    if (isInput) renamed.set(name, plain);
    kept[plain] = isInput ? schema : openUp(schema);
  }
  const tidy = { ...document, components: { ...document.components, schemas: kept } };
  return JSON.parse(renameReferences(JSON.stringify(tidy), renamed)) as Document;
}
