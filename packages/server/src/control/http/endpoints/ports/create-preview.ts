import { CreatedPreview, CreatePreviewRequest } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { PortParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

const Body = z.preprocess((body) => body ?? {}, CreatePreviewRequest);

export function addCreatePreview(
  app: App,
  { sandboxes, previews }: Pick<HttpParts, 'sandboxes' | 'previews'>,
): void {
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/ports/:port/preview',
    config: { access: 'full' },
    schema: {
      operationId: 'createPreview',
      summary: 'Create a link that shows a port of the sandbox in a browser, under an origin of its own',
      params: PortParams,
      body: Body,
      response: answers(201, CreatedPreview, [400, 401, 404, 409, 429, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, reach, apiKeyId, body } = request;
      const { id, port } = request.params;
      await sandboxes.getDriver(reach, id);
      const preview = { organizationId, apiKeyId, id, port: Number(port), expiresInS: body.expires_in };
      return reply.code(201).send(await previews.create(preview));
    },
  });
}
