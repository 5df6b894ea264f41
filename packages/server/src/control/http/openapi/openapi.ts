/** The OpenAPI 3.1 document, made from the schemas that check requests and serialize answers. */
import swagger from '@fastify/swagger';
import { jsonSchemaTransformObject } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { SESSION_COOKIE } from '../account/session/session-cookie.ts';
import type { App } from '../app.ts';
import { finishDocument } from './document.ts';
import { describeRoute } from './operations.ts';

export async function addOpenApi(app: App, version: string): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Coppice',
        version,
        description: 'Self-hosted microVM sandboxes for code you do not trust.',
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      components: {
        securitySchemes: {
          apiKey: { type: 'http', scheme: 'bearer', description: 'An API key: `cop_live_<region>_…`' },
          ticket: {
            type: 'apiKey',
            in: 'query',
            name: 'ticket',
            description: 'A ticket of `POST …/tickets`, valid once.',
          },
          token: {
            type: 'apiKey',
            in: 'query',
            name: 'token',
            description: 'An API key. A ticket is safer.',
          },
          session: { type: 'apiKey', in: 'cookie', name: SESSION_COOKIE },
        },
      },
      tags: [
        {
          name: 'account',
          description:
            'For people who are signed in. Changes need an `Origin` header with the origin of this service.',
        },
      ],
      security: [{ apiKey: [] }],
    },
    exposeHeadRoutes: true,
    transform: describeRoute,
    transformObject: (document) => finishDocument(jsonSchemaTransformObject(document)),
  });
  // All answers share it: a client that asks often and reads nothing must not fill the memory.
  let content: Buffer | undefined;
  app.route({
    method: 'GET',
    url: '/openapi.json',
    schema: {
      operationId: 'getOpenApi',
      summary: 'Get this document',
      security: [],
      response: { 200: z.looseObject({ openapi: z.string() }).describe('An OpenAPI 3.1 document.') },
    },
    handler: async (_request, reply) => {
      content ??= Buffer.from(JSON.stringify(app.swagger()));
      return reply.type('application/json; charset=utf-8').send(content as never);
    },
  });
}
