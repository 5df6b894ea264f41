import { PreviewRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addListPreviews(
  app: App,
  { sandboxes, previews }: Pick<HttpParts, 'sandboxes' | 'previews'>,
): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/previews',
    config: { access: 'read' },
    schema: {
      operationId: 'listPreviews',
      summary: 'List the preview links of the sandbox that are still valid, newest first',
      params: SandboxParams,
      response: answers(200, z.array(PreviewRecord), [401, 404, 503]),
    },
    handler: async ({ reach, params }) => {
      await sandboxes.get(reach, params.id);
      return previews.list(params.id);
    },
  });
}
